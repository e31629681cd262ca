"""Several keys at once: all of them are charged, or none."""

from collections.abc import Iterable, Mapping

from batchlimit.aio.key_entry import KeyEntry
from batchlimit.aio.registry import Registry
from batchlimit.aio.waiting_task import WaitingTask
from batchlimit.base.decision import Decision
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import RateLimited
from batchlimit.quota.key import check_cost, check_costs, stored
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.forecast import longest_refusal
from batchlimit.reservoir.waiter import Admit, Refuse, Retired, half_of


class AsyncAcquireAll:
    """Charges several keys for one caller, as in the threaded API.

    All keys of which nothing is known are asked for at the same time.
    """

    def __init__(
        self, costs: Mapping[str, int] | Iterable[tuple[str, int]], registry: Registry, priority: int = 1
    ) -> None:
        self._costs, self._priority = check_costs(costs), priority
        self._find, self._clock = registry.entry, registry.clock
        registry.check_open()
        for key, cost in self._costs.items():
            check_cost(cost, registry.entry(key).reservoir.state.most, key)
        self._held: list[tuple[KeyEntry, WaitingTask]] = []
        self._charged: list[tuple[KeyEntry, WaitingTask]] = []
        # Its number in each queue. Not by key: a key entry may retire, and the queue of the next one counts anew.
        self._places: dict[KeyEntry, int] = {}

    def __repr__(self) -> str:
        return f"<AsyncAcquireAll: holds {len(self._held)} of {len(self._costs)} keys>"

    async def acquire(self, until: float) -> None:
        """Wait until all are charged; RateLimited, by the key that takes longest, as soon as that cannot be in time."""
        try:
            short = await self._try(None, until)
            while short is not None:
                short = await self._try(short, until)
        except RateLimited as refusal:
            found = {key: self._find(key).reservoir for key in self._costs}
            raise longest_refusal(refusal, found, self._costs, self._clock()) from None

    async def decide(self) -> dict[str, Decision]:
        """Charge all keys now; return the Decision on each, or that on the key that is short if none is charged."""
        try:
            await self.acquire(NO_WAIT)
        except RateLimited as refusal:
            return {refusal.key: refusal.decision}
        results = {entry.key: self._result(entry, caller) for entry, caller in self._charged}
        now = self._clock()
        return {key: results[stored(key)].decision(now) for key in self._costs}

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
        while isinstance(verdict := await self._join(key, until).verdict(self._clock), Retired):
            self._leave()
        if isinstance(verdict, Refuse):
            raise self._refusal(key, verdict)
        return half_of(verdict, until, self._clock())

    async def _take_rest(self, behind: str | None, patience: float, until: float) -> str | None:
        callers = {}
        for key in self._order(behind):
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
                    raise self._refusal(key, verdict)
                return key
        return self._confirm()

    def _order(self, behind: str | None) -> list[str]:
        """First the keys that memory refuses, then those that it admits; the store is asked last. Each kind by name."""
        now = self._clock()

        def rank(key: str) -> tuple[int, str]:
            return self._find(key).reservoir.forecast.prospect(self._costs[key], now), key

        return sorted((key for key in self._costs if key != behind), key=rank)

    def _refusal(self, key: str, verdict: Refuse) -> RateLimited:
        name = stored(key)
        entry, caller = next(each for each in self._held if each[0].key == name)
        return self._result(entry, caller, verdict).refusal(key, self._clock())

    def _result(self, entry: KeyEntry, caller: WaitingTask, verdict: Refuse | None = None) -> AdmissionResult:
        found = verdict or caller.waiter.verdict
        assert isinstance(found, Admit | Refuse)
        return AdmissionResult(found, caller.waited, caller.waiter.asked > 0, entry.reservoir.forecast)

    def _join(self, key: str, until: float) -> WaitingTask:
        entry = self._find(key)
        caller = entry.join(self._costs[key], until, self._places.get(entry, 0), priority=self._priority)
        self._places[entry] = caller.waiter.number
        self._held.append((entry, caller))
        return caller

    def _confirm(self) -> str | None:
        """Spend all that is held; or return the key whose tokens have expired by now."""
        now = self._clock()
        for entry, caller in self._held:
            if not caller.waiter.is_good(now):
                return next(key for key in self._costs if stored(key) == entry.key)
        for entry, caller in self._held:
            entry.reservoir.admission.confirm(caller.waiter)
            caller.part()
        self._charged, self._held = self._held, []
        return None

    def _leave(self) -> None:
        while self._held:
            entry, caller = self._held.pop()
            entry.leave(caller)
