"""Several keys at once for a thread; those of which nothing is known are asked for in one round trip."""

from collections.abc import Mapping, Sequence
from typing import Any

from batchlimit.base.blocking import warn_in_loop
from batchlimit.base.waiting import NO_WAIT
from batchlimit.keyspace.several import SeveralKeys
from batchlimit.quota.key import Costs
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.waiter import Fetch
from batchlimit.sync.key_entry import TOGETHER, KeyEntry, fetch_together
from batchlimit.sync.waiting_thread import WaitingThread


class AcquireAll(SeveralKeys[WaitingThread]):
    """See SeveralKeys."""

    def __init__(self, costs: Costs, registry: Any, priority: int, came: Mapping[str, int]) -> None:
        super().__init__(costs, registry, registry.live_entry, priority, came)
        self._store, self._finish = registry.store, registry.finish

    def _begin(self, keys: Sequence[str], patience: float) -> None:
        """Ask in one round trip for those of several keys whose queues are empty.

        A caller that waits asks for one after the other. Else two callers may wait for each other in two queues.
        """
        if len(keys) == 1 or not self._store.is_pipelined or patience != NO_WAIT:
            return
        warn_in_loop()
        for first in range(0, len(keys), TOGETHER):
            some = keys[first : first + TOGETHER]
            if requests := [request for key in some if (request := self._join(key)) is not None]:
                fetch_together(self._store, requests)

    def _join(self, key: str) -> tuple[KeyEntry, Fetch] | None:
        caller = self._caller(key, NO_WAIT)
        if (step := caller.join_first()) is None:
            self._held.pop()
            return None
        self._places[caller.entry] = caller.waiter.number
        self._begun[key] = caller
        return (caller.entry, step) if isinstance(step, Fetch) else None

    def _hold(self, key: str, until: float) -> AdmissionResult:
        if (caller := self._begun.pop(key, None)) is not None:
            if (settled := caller.result()) is not None:
                return settled
            self._held.remove(caller)
        while True:
            caller = self._caller(key, until)
            if (settled := caller.wait()) is not None:
                self._places[caller.entry] = caller.waiter.number
                return settled
            self._held.pop()  # the key entry had just retired

    def _caller(self, key: str, until: float) -> WaitingThread:
        """Return a caller that joins the queue next. It is held before: an interrupt may come between any two lines."""
        caller = WaitingThread(self._find(key), self._costs[key], until, tentative=True, priority=self._priority)
        caller.waiter.number = self._number(caller.entry, key)
        self._held.append(caller)
        return caller

    def _leave(self) -> None:
        self._begun.clear()
        for caller in self._held:
            caller.leave()
        self._held = []
