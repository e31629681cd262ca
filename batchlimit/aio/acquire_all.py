"""Several keys at once for a task; those of which nothing is known are asked for at the same time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchlimit.aio.waiting_task import WaitingTask
from batchlimit.keyspace.several import SeveralKeys
from batchlimit.quota.key import Costs
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.waiter import Refuse, Retired


class AsyncAcquireAll(SeveralKeys[WaitingTask]):
    """See SeveralKeys."""

    def __init__(self, costs: Costs, registry: Any, priority: int, came: Mapping[str, int]) -> None:
        super().__init__(costs, registry, registry.entry, priority, came)

    def _begin(self, keys: Sequence[str], patience: float) -> None:
        for key in keys:
            caller = self._begun[key] = self._join(key, patience)
            if isinstance(caller.waiter.verdict, Refuse):
                break  # from memory: no other key has to be asked for

    async def _hold(self, key: str, until: float) -> AdmissionResult:
        caller = self._begun.pop(key, None) or self._join(key, until)
        while isinstance(await caller.verdict(self._clock), Retired):
            self._held.remove(caller)
            caller.entry.leave(caller)
            caller = self._join(key, until)
        return caller.told()

    def _join(self, key: str, until: float) -> WaitingTask:
        entry = self._find(key)
        caller: WaitingTask = entry.join(self._costs[key], until, self._number(entry, key), priority=self._priority)
        self._places[entry] = caller.waiter.number
        self._held.append(caller)
        return caller

    def _leave(self) -> None:
        self._begun.clear()
        while self._held:
            caller = self._held.pop()
            caller.entry.leave(caller)

    def _finish(self, leave: Callable[[], None]) -> None:
        """Do nothing: it is done at once."""
