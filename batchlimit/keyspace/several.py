"""What a caller of several keys holds, in either API: all of them are charged, or none."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from batchlimit.base.decision import Decision
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import RateLimited
from batchlimit.quota.key import Costs, check_cost, check_costs, stored
from batchlimit.reservoir.forecast import Prospect, longest_refusal

C = TypeVar("C", bound=Any)
"""A tentative place in the queue of one key: a WaitingThread or a WaitingTask."""


class SeveralKeys(Generic[C]):
    """The costs of several keys, and the callers that stand in their queues for one call.

    `acquire` and `decide` are steps that threads and tasks take alike, by a `_try` of their own.
    """

    _try: Callable[[str | None, float], Any]
    """Takes all keys, waiting first at the one that was short before; returns the one that is short now."""

    def __init__(self, costs: Costs, registry: Any, find: Callable[[str], Any], priority: int) -> None:
        self._costs, self._priority = check_costs(costs), priority
        self._find, self._clock, self._attempt = find, registry.clock, registry.attempt
        registry.check_open()
        for key, cost in self._costs.items():
            check_cost(cost, registry.entry(key).reservoir.state.most, key)
        self._held: list[C] = []
        self._charged: list[C] = []
        # Its number in each queue. Not by key: a key entry may retire, and the queue of the next one counts anew.
        self._places: dict[Any, int] = {}

    def acquire(self, until: float) -> Steps[None]:
        """Wait until all are charged; RateLimited, by the key that takes longest, as soon as that cannot be in time."""
        short: str | None = None
        try:
            while True:
                with self._attempt:
                    short = yield self._try(short, until)
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

    def _prospects(self, behind: str | None) -> dict[str, Prospect]:
        """First the keys that memory refuses, then those that it admits; those for which the store is asked come last.

        Keys of one kind are sorted by name: callers that want the same keys meet at the first of them.
        """
        now, costs = self._clock(), self._costs
        found = {key: self._find(key).reservoir.forecast.prospect(costs[key], now) for key in costs if key != behind}
        return dict(sorted(found.items(), key=lambda each: (each[1], each[0])))

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
