"""Several keys at once, in either API: all of them are charged, or none."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from batchlimit.base.decision import Decision
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import RateLimited, StoreUnavailable
from batchlimit.quota.key import Costs, check_cost, check_costs, stored
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.forecast import Prospect, longest_refusal
from batchlimit.reservoir.waiter import Refuse, half_of

C = TypeVar("C", bound=Any)
"""A tentative place in the queue of one key: a WaitingThread or a WaitingTask."""


class SeveralKeys(Generic[C]):
    """Charges several keys for one caller: it holds tokens of some keys until it holds those of all.

    A caller that is refused at one key returns the tokens of the others, and waits at that key alone. Once served there
    it waits for the others too, for half of its tokens' lease. If it cannot get all of them by then, it returns its
    tokens and tries again. It keeps its place in each queue, so it succeeds where all keys have a queue.

    `acquire` and `decide` are steps that threads and tasks take alike. A class of each API says how.
    """

    _begin: Callable[[Sequence[str], float], None]
    """Asks at the same time for the keys of which nothing is known, as far as that can be; who waits, until then."""
    _hold: Callable[[str, float], Any]
    """Waits in the queue of a key until then; returns the result, which a task awaits."""
    _leave: Callable[[], None]
    """Leaves all queues, once, also where this is interrupted and done again."""
    _finish: Callable[[Callable[[], None]], object]
    """Has this done, though its thread may be interrupted once more."""

    def __init__(
        self, costs: Costs, registry: Any, find: Callable[[str], Any], priority: int, came: Mapping[str, int]
    ) -> None:
        """`came` are the numbers of spends in vain, by key: nobody who came later is ahead."""
        self._costs, self._priority, self._came = check_costs(costs), priority, came
        self._find, self._clock, self._attempt = find, registry.clock, registry.attempt
        registry.check_open()
        for key, cost in self._costs.items():
            check_cost(cost, registry.entry(key).reservoir.state.most, key)
        self._held: list[C] = []
        self._begun: dict[str, C] = {}  # those of them that asked at the same time
        self._charged: list[C] = []
        # Its number in each queue. Not by key: a key entry may retire, and the queue of the next one counts anew.
        self._places: dict[Any, int] = {}

    def acquire(self, until: float) -> Steps[None]:
        """Wait until all are charged; RateLimited, by the key that takes longest, as soon as that cannot be in time."""
        short: str | None = None
        try:
            while True:
                with self._attempt:
                    short = yield from self._try(short, until)
                if short is None:
                    return
        except RateLimited as refusal:
            found = {key: self._find(key) for key in self._costs}
            raise longest_refusal(refusal, found, self._costs, self._clock()) from None

    def decide(self) -> Steps[dict[str, Decision]]:
        """Charge all keys now; return the Decision on each, or that on the key that is short if none is charged."""
        try:
            yield from self.acquire(NO_WAIT)
        except RateLimited as refusal:
            return {refusal.key: refusal.decision}
        results, now = {caller.entry.key: caller.told() for caller in self._charged}, self._clock()
        return {key: results[stored(key)].decision(now) for key in self._costs}

    def _try(self, behind: str | None, until: float) -> Steps[str | None]:
        """Take all keys, waiting first at the one that was short before; return the one that is short now."""
        try:
            short = yield from self._take(behind, until)
            self._leave()
            return short
        except (RateLimited, StoreUnavailable):
            self._leave()
            raise
        except BaseException:
            self._finish(self._leave)
            self._leave()
            raise

    def _take(self, behind: str | None, until: float) -> Steps[str | None]:
        patience = NO_WAIT
        if behind is not None:
            settled: AdmissionResult = yield self._hold(behind, until)
            if isinstance(settled.verdict, Refuse):
                raise settled.refusal(behind, self._clock())
            patience = half_of(settled.verdict, until, self._clock())
        prospects = self._prospects(behind)
        unknown = [key for key, prospect in prospects.items() if prospect == Prospect.UNKNOWN]
        for key in prospects:
            if unknown and key == unknown[0]:
                self._begin(unknown, patience)
            settled = yield self._hold(key, patience)
            if isinstance(settled.verdict, Refuse):
                if self._clock() + settled.verdict.retry_after <= until:
                    return key
                with suppress(StoreUnavailable):  # whether or not that key can be served: this one refuses
                    for other in list(self._begun):  # one may take longer
                        yield self._hold(other, patience)
                raise settled.refusal(key, self._clock())
        return self._confirm()

    def _prospects(self, behind: str | None) -> dict[str, Prospect]:
        """First the keys that memory refuses, then those that it admits; those for which the store is asked come last.

        Keys of one kind are sorted by name: callers that want the same keys meet at the first of them.
        """
        now, costs = self._clock(), self._costs
        found = {key: self._find(key).reservoir.forecast.prospect(costs[key], now) for key in costs if key != behind}
        return dict(sorted(found.items(), key=lambda each: (each[1], each[0])))

    def _number(self, entry: Any, key: str) -> int:
        """Return the number of this caller in the queue of a key; 0: it joins last."""
        return self._places.get(entry) or self._came.get(key, 0)

    def _confirm(self) -> str | None:
        """Spend all that is held; or return the key whose tokens have expired by now."""
        now = self._clock()
        for caller in self._held:
            if not caller.waiter.is_good(now):
                return next(key for key in self._costs if stored(key) == caller.entry.key)
        for caller in self._held:
            caller.confirm()
        self._charged, self._held = self._held, []
        return None
