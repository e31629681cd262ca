"""The slots of shared limits in the memory of this process."""

import time
from collections.abc import Callable

from batchlimit.base.blocking import not_reentered, own_lock
from batchlimit.bucket.slot_messages import SlotAsk, SlotPush, SlotReply
from batchlimit.bucket.slot_table import SlotTable
from batchlimit.stores.expiring import Expiring

Receive = Callable[[str, SlotPush], None]
"""Is called with each push and the key of its limit. It does not block, and asks for nothing."""

_SECOND = 1_000_000


class MemorySlots:
    """A Lender in a dict; see lua/lend.lua. Its clock is the store's, set to the time of day when it is made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, time.time() - clock()
        self._tables = Expiring[SlotTable]()
        self._receivers: dict[str, Receive] = {}
        self._lock = own_lock()

    def lend(self, key: str, ask: SlotAsk) -> SlotReply:
        """See Lender.lend."""
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
        self._lock, self._receivers = own_lock(), {}
