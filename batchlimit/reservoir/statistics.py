"""What a user learns: a Decision about one call, the Statistics of one limiter."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from batchlimit.errors import whole_seconds
from batchlimit.quota.quota import Quota

Source = Literal["local", "store", "denied", "fallback"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a call may go ahead, and what to tell its caller. True in a condition if allowed. Times are seconds."""

    allowed: bool
    limit: int
    """The largest cost that can ever pass at once: the burst, the smallest one where the quota has several."""
    remaining: int
    """Tokens that this process could still admit: those it holds and those it last saw in the bucket."""
    retry_after: float
    """When the same cost is expected to fit; 0 if it was allowed, inf if it never will."""
    reset_after: float
    """When the bucket will be full again if nobody spends; inf for a rate of 0."""
    source: Source
    """Who decided: tokens in memory, the store, or the memory of what the store refused a moment ago; `fallback`: what
    `on_failure` says, while the store is away."""

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def retry_after_seconds(self) -> int | None:
        """`retry_after` for a Retry-After header: whole seconds, rounded up; None, for no header, if it is never."""
        return whole_seconds(self.retry_after)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What one limiter has done since it was made, or since its process was forked."""

    keys: int
    """Keys in memory now."""
    admitted: int
    """Tokens admitted."""
    refused: int
    """Tokens refused. Counted without a lock: builds of Python without the GIL may lose a few."""
    calls: int
    """Calls of the store: asks for tokens and give-backs."""
    held: int
    """Tokens leased and not yet spent."""
    waiting: int
    """Callers in line now."""
    owed: int = 0
    """Tokens that were used beyond what reservations had estimated, and that are charged as they flow in."""
    fallback: int = 0
    """Tokens admitted without the store, while it was away: part of `admitted`."""
    failures: int = 0
    """Calls that the store did not answer in time, or not at all; of those only that were made: while it is given up
    there are none."""
    outages: int = 0
    """How often the store was given up."""
    losses: int = 0
    """How often a key's bucket was found to have lost its state."""
    available: bool = True
    """Whether the store is asked; False while it, or a part of it, is given up."""


class Health(NamedTuple):
    """How the store has been: as in Statistics."""

    failures: int = 0
    outages: int = 0
    available: bool = True


def decision(quota: Quota, remaining: int, retry_after: float, source: Source) -> Decision:
    """Return the Decision on a call that was admitted if `retry_after` (s) is 0, with `remaining` tokens to go on.

    Never more than the limit remains: what is borrowed while the store is away may be more, and nobody can use it.
    """
    remaining = min(remaining, quota.largest_cost)
    return Decision(
        allowed=retry_after == 0.0,
        limit=quota.largest_cost,
        remaining=remaining,
        retry_after=retry_after,
        reset_after=reset_after(quota, remaining),
        source=source,
    )


def outlook(quota: Quota, level: int, held: int, source: Source = "store") -> Decision:
    """Return how a call of cost 1 would fare at a bucket of this `level`, where an instance holds `held` of it."""
    if quota.denies_all:
        return decision(quota, 0, math.inf, "local")
    remaining = max(0, level) + held
    wait = max((1 - level) / each.rate for each in quota.bandwidths)
    return decision(quota, remaining, 0.0 if remaining else wait, source)


def reset_after(quota: Quota, remaining: int) -> float:
    """Return when (s) a bucket with `remaining` tokens is full again if nobody spends."""
    if quota.denies_all:
        return math.inf
    return max(0.0, *((each.burst - remaining) / each.rate for each in quota.bandwidths))


class KeyStatistics(NamedTuple):
    """Counts of tokens, but for `calls` of the store, `losses` of a bucket's state, and `waiting` callers.

    What happened comes first: it is remembered when the reservoir goes. What is there now goes with it.
    """

    admitted: int = 0
    refused: int = 0
    calls: int = 0
    fallback: int = 0
    losses: int = 0
    held: int = 0
    waiting: int = 0
    owed: int = 0
