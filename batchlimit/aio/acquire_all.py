"""Several keys at once: all of them are charged, or none."""

from batchlimit.aio.registry import Registry
from batchlimit.aio.waiting_task import WaitingTask
from batchlimit.base.waiting import NO_WAIT
from batchlimit.keyspace.several import SeveralKeys
from batchlimit.quota.key import Costs
from batchlimit.reservoir.waiter import Refuse, Retired, half_of


class AsyncAcquireAll(SeveralKeys[WaitingTask]):
    """Charges several keys for one caller, as in the threaded API.

    All keys of which nothing is known are asked for at the same time.
    """

    def __init__(self, costs: Costs, registry: Registry, priority: int = 1) -> None:
        super().__init__(costs, registry, registry.entry, priority)

    async def _try(self, behind: str | None, until: float) -> str | None:
        """Take all keys, waiting first at the one that was short before; return the one that is short now."""
        patience = NO_WAIT
        try:
            if behind is not None:
                patience = await self._wait_at(behind, until)
            return await self._take_rest(behind, patience, until)
        finally:
            self._leave()

    async def _wait_at(self, key: str, until: float) -> float:
        """Wait in the queue of this key while holding nothing; return until when to wait for the others then."""
        while isinstance(verdict := await (caller := self._join(key, until)).verdict(self._clock), Retired):
            self._leave()
        if isinstance(verdict, Refuse):
            raise caller.told().refusal(key, self._clock())
        return half_of(verdict, until, self._clock())

    async def _take_rest(self, behind: str | None, patience: float, until: float) -> str | None:
        callers = {}
        for key in self._prospects(behind):
            callers[key] = self._join(key, patience)
            if isinstance(callers[key].waiter.verdict, Refuse):
                break  # from memory: no other key has to be asked for
        for key, caller in callers.items():
            verdict = await caller.verdict(self._clock)
            if isinstance(verdict, Retired):
                return key
            if isinstance(verdict, Refuse):
                if self._clock() + verdict.retry_after > until:
                    for other in callers.values():  # which were asked for at the same time: one may take longer
                        await other.verdict(self._clock)
                    raise caller.told().refusal(key, self._clock())
                return key
        return self._confirm()

    def _join(self, key: str, until: float) -> WaitingTask:
        entry = self._find(key)
        caller: WaitingTask = entry.join(self._costs[key], until, self._places.get(entry, 0), priority=self._priority)
        self._places[entry] = caller.waiter.number
        self._held.append(caller)
        return caller

    def _leave(self) -> None:
        while self._held:
            caller = self._held.pop()
            caller.entry.leave(caller)
