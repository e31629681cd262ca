"""What a caller of several keys holds, in either API: all of them are charged, or none."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from batchlimit.base.decision import Decision
from batchlimit.errors import RateLimited
from batchlimit.quota.key import Costs, check_cost, check_costs, stored
from batchlimit.reservoir.forecast import Prospect, longest_refusal

C = TypeVar("C", bound=Any)
"""A tentative place in the queue of one key: a WaitingThread or a WaitingTask."""


class SeveralKeys(Generic[C]):
    """The costs of several keys, and the callers that stand in their queues for one call."""

    def __init__(self, costs: Costs, registry: Any, find: Callable[[str], Any], priority: int) -> None:
        self._costs, self._priority = check_costs(costs), priority
        self._find, self._clock = find, registry.clock
        registry.check_open()
        for key, cost in self._costs.items():
            check_cost(cost, registry.entry(key).reservoir.state.most, key)
        self._held: list[C] = []
        self._charged: list[C] = []
        # Its number in each queue. Not by key: a key entry may retire, and the queue of the next one counts anew.
        self._places: dict[Any, int] = {}

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

    def _decisions(self) -> dict[str, Decision]:
        """Return the Decision on each key, once all are charged."""
        results = {caller.entry.key: caller.told() for caller in self._charged}
        now = self._clock()
        return {key: results[stored(key)].decision(now) for key in self._costs}

    def _longest(self, refusal: RateLimited) -> RateLimited:
        """Return the refusal of the call, by the key that memory refuses for longest."""
        found = {key: self._find(key) for key in self._costs}
        return longest_refusal(refusal, found, self._costs, self._clock())
