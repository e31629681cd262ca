"""What a MemoryStore keeps beside buckets: overrides, the slots of shared limits, and entries that end."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from batchlimit.base.blocking import OwnLock, not_reentered
from batchlimit.bucket.slot_table import SlotAsk, SlotPush, SlotReply, SlotTable
from batchlimit.quota.overrides.known import Published
from batchlimit.quota.overrides.overrides import FORMAT, RULE, Change, Entry, Overrides

T = TypeVar("T")
_EACH = 2
"""Entries that are looked at for each that an ask may add: no more are kept that have ended than others."""
_PAUSE = 1000
"""After a pause one more is looked at for each so many microseconds, for few asks may follow a flood..."""
_MOST = 250
"""... but no more than these: to forget so many buckets takes 0.6 ms."""


class Expiring(OrderedDict[str, tuple[T, int]]):
    """Things by key, each with the instant (us) at which it ends; they are looked at in turn, so it may have passed."""

    _forgot_at = 0

    def forget(self, now: int, asks: int = 1) -> None:
        """Look at a few entries for each that this ask may add, and forget those that have ended (us)."""
        waited, self._forgot_at = now - self._forgot_at, now
        for _ in range(min(len(self), _EACH * asks + min(_MOST, max(0, waited // _PAUSE)))):
            key, (_, ends) = next(iter(self.items()))
            if now < ends:
                self.move_to_end(key)
            else:
                del self[key]


_LOGGED = 1000
"""Changes of overrides that are remembered."""


class MemoryRules:
    """A RuleStore in a dict; see lua/change.lua. Its clock is the store's, set to the time of day when it is made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, time.time() - clock()
        self._lock = OwnLock()
        self._fields: dict[str, str] = {}
        self._log: list[Entry] = []
        self.revision = 0

    def read(self, known: int) -> Published:
        with not_reentered(self._lock):
            fields = None if self.revision == known else dict(self._fields)
            return Published(self.revision, self._now(), fields)

    def change(self, change: Change) -> tuple[bool, int]:
        with not_reentered(self._lock):
            if change.revision != self.revision:
                return False, self.revision
            now = self._now()
            self.revision = max(self.revision + 1, int(now * 100))
            self._fields |= {"revision": str(self.revision), "form": FORMAT}
            for name, text in change.texts.items():
                old = self._fields.pop(RULE + name, "")
                if text:
                    self._fields[RULE + name] = text
                self._log.insert(0, Entry(now, self.revision, name, old, text, change.who, change.why))
            del self._log[_LOGGED:]
            return True, self.revision

    def note(self, key: str, old: str, new: str, who: str, why: str) -> None:
        with not_reentered(self._lock):
            self._log.insert(0, Entry(self._now(), self.revision, key, old, new, who, why))

    def remind(self, overrides: Overrides) -> None:
        """Do nothing: it loses none."""

    def log(self, count: int) -> list[Entry]:
        with not_reentered(self._lock):
            return self._log[:count]

    def after_fork(self) -> None:
        self._lock = OwnLock()

    def _now(self) -> float:
        return self._began + self._clock()


Receive = Callable[[str, SlotPush], None]
"""Is called with each push and the key of its limit. It does not block, and asks for nothing."""

_SECOND = 1_000_000


class MemorySlots:
    """Lends slots in a dict; see lua/lend.lua. Its clock is the store's, set to the time of day when it is made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, time.time() - clock()
        self._tables = Expiring[SlotTable]()
        self._receivers: dict[str, Receive] = {}
        self._lock = OwnLock()

    def lend(self, key: str, ask: SlotAsk) -> SlotReply:
        now = int((self._began + self._clock()) * _SECOND)
        with not_reentered(self._lock):
            self._tables.forget(now)
            table, expires = self._tables.get(key, (None, 0))
            if table is None or now >= expires:
                table = SlotTable()
            reply, pushes = table.lend(ask, now)
            self._tables[key] = table, table.expires
        for push in pushes:
            if receive := self._receivers.get(push.instance.split(".", maxsplit=1)[0]):
                receive(key, push)
        return reply

    def listen(self, instance: str, receive: Receive) -> None:
        """Call `receive` with each push for an instance."""
        self._receivers[instance] = receive

    def forget(self, instance: str) -> None:
        """Call its `receive` no more."""
        self._receivers.pop(instance, None)

    def after_fork(self) -> None:
        """Replace the lock, and forget who listened in the parent."""
        self._lock, self._receivers = OwnLock(), {}
