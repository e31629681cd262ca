"""The Decisions on the calls of one key: whether a call may go ahead, and what else its caller learns."""

from collections.abc import Mapping
from dataclasses import replace
from operator import length_hint
from typing import TYPE_CHECKING

from batchlimit.base.decision import Decision, Source
from batchlimit.bucket.messages import Level
from batchlimit.errors import RateLimited
from batchlimit.reservoir.forecast import Forecast
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.statistics import decision, outlook

if TYPE_CHECKING:
    from batchlimit.reservoir.reservoir import Reservoir


class Decisions:
    """Answers `decide` and `peek` by what this process knows.

    It changes nothing, but that `outlook` may begin the bucket that stands in for the store's.
    `remaining`, `told` and `without_bucket` are safe without the lock: each makes a few reads, and its answer was right
    a moment ago.
    """

    __slots__ = ("_forecast", "_state")

    def __init__(self, state: KeyState, forecast: Forecast) -> None:
        self._state, self._forecast = state, forecast

    def __repr__(self) -> str:
        return f"<Decisions on {self._state}>"

    def remaining(self, now: float) -> int:
        """Return how many tokens this process could still admit: those here, and those last seen in the bucket."""
        state = self._state
        tokens, level = state.tokens, state.view.level
        if state.lease.borrowed and (local := state.fallback.bucket) is not None:
            level = local.level(now)
        here = tokens.free + length_hint(tokens.lock_free) if now < tokens.expires else 0
        return max(0, level) + here

    def told(self, retry_after: float, source: Source, now: float) -> Decision:
        """Return the Decision on a call that was refused for `retry_after` seconds, or admitted if that is 0.

        `source` says who decided, unless the fallback did.
        """
        state = self._state
        by: Source = source
        if state.lease.borrowed and source != "shadow":
            by = "open" if state.mode == "open" else "fallback"
        remaining, view = self.remaining(now), state.view
        owed = state.overdraft.total
        if state.lease.borrowed or not (state.quota.also or view.level < 0 or owed):
            return decision(state.quota, remaining, retry_after, by)
        levels = view.levels(state.quota, remaining - max(0, view.level) - owed, now)
        return decision(state.quota, remaining, retry_after, by, view.binding, levels)

    def outlook(self, now: float) -> Decision | None:
        """Return the decision on a call of cost 1 while the store is away; None: the call would fail."""
        state = self._state
        if (local := state.fallback.bucket_now(state.quota, state.view, now)) is None:
            return None
        return self._as_it_is(outlook(state.quota, local.level(now), self._forecast.spendable(now), "fallback"))

    def without_bucket(self, now: float) -> Decision | None:
        """Return the decision on a call of cost 1 where no bucket is needed for it; None: it depends on that."""
        state = self._state
        if state.mode == "open":
            largest = state.largest_cost
            return Decision(True, largest, largest, 0.0, 0.0, "open", state.quota)
        if not state.denies_all:
            return None
        return self._as_it_is(outlook(state.quota, 0, 0, denied_for=self._forecast.held_for(now)))

    def at_level(self, seen: Level, now: float) -> Decision:
        """Return the decision on a call of cost 1 at a bucket like this, of which all that is owed here will go."""
        state = self._state
        owed, wait, held = state.overdraft.total, self._forecast.denied_for(1, now), self._forecast.spendable(now)
        levels = [each - owed for each in seen.levels]
        return self._as_it_is(outlook(state.quota, seen.level - owed, held, denied_for=wait, levels=levels))

    def _as_it_is(self, decision: Decision) -> Decision:
        """In shadow mode nothing is refused."""
        if decision.allowed or self._state.mode != "shadow":
            return decision
        return replace(decision, allowed=True, retry_after=0.0, source="shadow")


def longest_refusal(
    refusal: RateLimited, reservoirs: "Mapping[str, Reservoir]", costs: Mapping[str, int], now: float
) -> RateLimited:
    """Return the refusal of a call of several keys, by the one that memory refuses for longest."""
    denial = longest_denial(reservoirs, costs, now)
    if denial is None or denial[1] <= refusal.retry_after:
        return refusal
    key, wait = denial
    return RateLimited(key, wait, reservoirs[key].decisions.told(wait, "denied", now))


def longest_denial(
    reservoirs: "Mapping[str, Reservoir]", costs: Mapping[str, int], now: float
) -> tuple[str, float] | None:
    """Return which of several keys memory refuses for longest, and for how many seconds; None: it refuses none.

    A call of several keys is admitted once all of them have its tokens. None also while the store is away.
    """
    short = {key: each.forecast for key, each in reservoirs.items() if not each.state.tokens.has(costs[key], now)}
    if any(forecast.is_failing(now) for forecast in short.values()):
        return None
    waits = {key: forecast.denied_for(costs[key], now) for key, forecast in short.items()}
    key = max(waits, key=lambda each: waits[each], default="")  # the first of equal ones
    return (key, waits[key]) if waits.get(key) else None
