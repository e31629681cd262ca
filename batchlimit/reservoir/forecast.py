"""What memory alone says about a call: admit, refuse or ask the store, how long to wait, and what to tell."""

import math
from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from operator import length_hint
from typing import Any

from batchlimit.base.decision import Decision, Source
from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Level
from batchlimit.errors import RateLimited
from batchlimit.reservoir.bucket_view import fastest_rate, slowest_rate
from batchlimit.reservoir.denial_cache import MOMENT
from batchlimit.reservoir.depths import ALL_LATE, NONE_LATE, Horizon
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.statistics import decision, outlook
from batchlimit.reservoir.waiter import Waiter


class Prospect(IntEnum):
    """What memory says of a call. A caller of several keys goes through them in this order: the store comes last."""

    REFUSED = 1
    ADMITTED = 2
    UNKNOWN = 3


class Forecast:
    """Answers questions about one key. It changes nothing, but `without_store` may begin the bucket of the fallback.

    `denies`, `prospect`, `spendable`, `remaining`, `told` and `without_bucket` are safe without the lock: each makes a
    few reads, and its answer was right a moment ago. It has 14 public methods: each is one question of a caller.
    """

    __slots__ = ("_state",)

    def __init__(self, state: KeyState) -> None:
        self._state = state

    def denies(self, cost: int, now: float) -> bool:
        """Whether memory refuses `cost`."""
        state = self._state
        if state.mode != "enforce" or not state.tokens.available < cost <= state.largest_cost:
            return False
        return now < state.failing_until or self._dry_for(cost, state.queue.tokens, now) > 0.0

    def denied_for(self, cost: int, now: float) -> float:
        """Return after how many seconds `cost` is expected to fit, if memory refuses it; 0.0: memory does not."""
        state = self._state
        if not self.denies(cost, now):
            return 0.0
        if now < state.failing_until:
            return state.failing_until - now
        return max(state.denials.wait(cost, now), self._fits_in(state.queue.tokens, cost, now))

    def prospect(self, cost: int, now: float) -> Prospect:
        """Say what would become of `cost` now, by memory alone."""
        if self.denies(cost, now):
            return Prospect.REFUSED
        return Prospect.ADMITTED if cost <= self.spendable(now) else Prospect.UNKNOWN

    def spendable(self, now: float) -> int:
        """Return how many tokens are here for the next caller."""
        tokens = self._state.tokens
        return tokens.available if now < tokens.expires else 0

    def asks_in(self, waiter: Waiter, now: float) -> float:
        """Return for how many seconds there is no use in asking the store for this caller: as for the first waiter."""
        state = self._state
        if (starts := state.pending_from) > now:
            return starts - now
        if state.queue.highest_priority > state.told_priority:
            return 0.0  # the bucket has not heard yet that somebody is urgent here, and may have tokens for them
        dry = self._dry_for(state.first_cost, 0, now)
        return dry if waiter.deadline == NO_WAIT else min(dry, max(0.0, state.denials.asks_at - now))

    def retry_after(self, waiter: Waiter, now: float) -> float:
        """Return the seconds until a refused caller may come again; if unknown, those that refill its cost."""
        state, waiters = self._state, self._state.queue
        first = state.first_cost if waiter in waiters else 0
        ahead = waiters.ahead_of(waiter) if waiter in waiters else 0
        wait = max(state.denials.wait(max(waiter.cost, first), now), self._fits_in(ahead, waiter.cost, now))
        return wait or waiter.cost / slowest_rate(state.quota)

    def held_for(self, now: float) -> float:
        """Return for how many seconds yet the rate is 0, as far as is known."""
        return max(MOMENT, self._state.denials.wait(1, now))

    def is_hopeless(self, waiter: Waiter, now: float) -> bool:
        """Whether a waiter in the queue cannot be served before its deadline."""
        queue = self._state.queue
        return waiter in queue and queue.is_late(waiter, self.horizon(now))

    def horizon(self, now: float) -> Horizon:
        """Say which waiters are hopeless: the bucket is known to be short until after their deadline, or for ever.

        Where the bucket was not short lately, its last level says nothing either: other processes return tokens to
        it, and its quota may have been raised.
        """
        state = self._state
        wait = max(state.pending_from - now, state.denials.wait(state.first_cost, now))
        if wait == 0.0 or wait == math.inf:
            return ALL_LATE if wait else NONE_LATE
        fastest = fastest_rate(state.quota)
        since = state.view.flows_since(state.lease.held, state.quota)
        return Horizon(now + wait, since, 1.0 / fastest if fastest else 0.0)

    def _dry_for(self, cost: int, ahead: int, now: float) -> float:
        """Return for how many seconds there is no use in asking for `cost`, behind what others ask for or owe."""
        state, denials = self._state, self._state.denials  # read once: one who has no lock sees all of one answer
        dry = denials.dry_for(cost, now)
        if dry and cost >= denials.large_cost:
            missing = ahead + cost - state.lease.held
            return 0.0 if state.view.has(missing, state.quota, now) else dry
        return dry

    def _fits_in(self, ahead: int, cost: int, now: float) -> float:
        """Return in how many seconds `cost` is here, behind what others ask for or owe, as the bucket told."""
        state = self._state
        if state.denies_all:
            return self.held_for(now)
        missing = ahead + cost - state.lease.held
        if state.lease.borrowed and state.fallback.bucket is not None:
            return state.fallback.bucket.fits_in(missing, now)
        return state.view.fits_in(missing, state.quota, now) + state.overdraft.delay(cost, state.quota, state.view)

    def remaining(self, now: float) -> int:
        """Return how many tokens this process may still admit: here, and last seen in the bucket, less what is owed."""
        state = self._state
        tokens, level = state.tokens, state.view.level
        if state.lease.borrowed and (local := state.fallback.bucket) is not None:
            level = local.level(now)
        here = tokens.free + length_hint(tokens.lock_free) if now < tokens.expires else 0
        return max(0, level - state.overdraft.total) + here

    def told(self, retry_after: float, source: Source, now: float) -> Decision:
        """Return the Decision on a call that was refused for so long (0: admitted) by `source`, or the fallback."""
        state = self._state
        by: Source = source
        if state.lease.borrowed and source != "shadow":
            by = "open" if state.mode == "open" else "fallback"
        remaining, view, owed = self.remaining(now), state.view, state.overdraft.total
        if not (remaining or retry_after or owed or state.lease.borrowed or state.denies_all or view.was_seen):
            return self._full(by)  # as far as anyone knows
        if state.lease.borrowed or not (state.quota.also or view.level < 0 or owed):
            return decision(state.quota, remaining, retry_after, by)
        levels = view.levels(state.quota, remaining - max(0, view.level - owed) - owed, now)
        return decision(state.quota, remaining, retry_after, by, view.binding, levels)

    def without_store(self, now: float) -> Decision | None:
        """Return the decision on a call of cost 1 while the store is away; None: the call would fail."""
        state = self._state
        if (local := state.fallback.bucket_now(state.quota, state.view, now)) is None:
            return None
        there = local.level(now) - state.overdraft.total
        return self._as_it_is(outlook(state.quota, there, self.spendable(now), "fallback"))

    def without_bucket(self, now: float) -> Decision | None:
        """Return the decision on a call of cost 1 where no bucket is needed for it; None: it depends on that."""
        state = self._state
        if state.mode == "open":
            return self._full("open")
        if not state.denies_all:
            return None
        return self._as_it_is(outlook(state.quota, 0, 0, denied_for=self.held_for(now)))

    def _full(self, source: Source) -> Decision:
        """Return the Decision on a call of a full bucket that costs nothing."""
        largest = self._state.largest_cost
        return Decision(True, largest, largest, 0.0, 0.0, source, self._state.quota)

    def at_level(self, seen: Level, now: float) -> Decision:
        """Return the decision on a call of cost 1 at a bucket like this, of which all that is owed here will go."""
        state = self._state
        owed, wait, held = state.overdraft.total, self.denied_for(1, now), self.spendable(now)
        levels = [each - owed for each in seen.levels]
        return self._as_it_is(outlook(state.quota, seen.level - owed, held, denied_for=wait, levels=levels))

    def _as_it_is(self, decision: Decision) -> Decision:
        """In shadow mode nothing is refused."""
        if decision.allowed or self._state.mode != "shadow":
            return decision
        return replace(decision, allowed=True, retry_after=0.0, source="shadow")


def longest_refusal(
    refusal: RateLimited, entries: Mapping[str, Any], costs: Mapping[str, int], now: float
) -> RateLimited:
    """Return the refusal of a call of several keys, by the one that memory refuses for longest."""
    denial = longest_denial(entries, costs, now)
    if denial is None or denial[-1] <= refusal.retry_after:
        return refusal
    key, entry, wait = denial
    return RateLimited(key, wait, entry.reservoir.forecast.told(wait, "denied", now))


def longest_denial(entries: Mapping[str, Any], costs: Mapping[str, int], now: float) -> tuple[str, Any, float] | None:
    """Return the key that memory refuses for longest, its entry and the seconds; None: none, or no store."""
    there = {key: entry for key in costs if (entry := entries.get(key)) is not None}  # other threads may remove some
    short = {key: each.reservoir for key, each in there.items() if not each.reservoir.state.tokens.has(costs[key], now)}
    if any(now < each.state.failing_until for each in short.values()):
        return None  # callers get the failure, and no time to come back
    waits = {key: each.forecast.denied_for(costs[key], now) for key, each in short.items()}
    key = max(waits, key=lambda each: waits[each], default="")  # the first of equal ones
    return (key, there[key], waits[key]) if waits.get(key) else None
