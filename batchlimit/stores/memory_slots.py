"""The slots of shared limits in the memory of this process."""

import time
from collections.abc import Callable

from batchlimit.blocking import free, own_lock
from batchlimit.lending.messages import SlotAsk, SlotPush, SlotReply
from batchlimit.lending.slot_table import SlotTable

Receive = Callable[[str, SlotPush], None]
"""Is called with each push and the key of its limit. It does not block, and asks for nothing."""

_SECOND = 1_000_000
_SWEEP = 1024
"""The fewest asks between two sweeps for expired limits; as many as limits were left, so O(1) on average."""


class MemorySlots:
    """A Lender in a dict; see lua/lend.lua. Its clock is the store's, set to the time of day when it is made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, time.time() - clock()
        self._tables: dict[str, SlotTable] = {}
        self._receivers: dict[str, Receive] = {}
        self._lends_left = _SWEEP
        self._lock = own_lock()

    def lend(self, key: str, ask: SlotAsk) -> SlotReply:
        """See Lender.lend."""
        now = int((self._began + self._clock()) * _SECOND)
        with free(self._lock):
            self._forget_old(now)
            table = self._tables.get(key)
            if table is None or now >= table.expires:
                table = self._tables[key] = SlotTable()
            reply, pushes = table.lend(ask, now)
        for push in pushes:
            if receive := self._receivers.get(push.instance.split(".", maxsplit=1)[0]):
                receive(key, push)
        return reply

    def _forget_old(self, now: int) -> None:
        self._lends_left -= 1
        if self._lends_left <= 0:
            self._tables = {key: each for key, each in self._tables.items() if now < each.expires}
            self._lends_left = max(_SWEEP, len(self._tables))

    def listen(self, instance: str, receive: Receive) -> None:
        """Call `receive` with each push for an instance."""
        self._receivers[instance] = receive

    def forget(self, instance: str) -> None:
        """Call its `receive` no more."""
        self._receivers.pop(instance, None)

    def after_fork(self) -> None:
        """Replace the lock, and forget who listened in the parent."""
        self._lock, self._receivers = own_lock(), {}
