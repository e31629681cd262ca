"""What a caller learns about one call."""

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from batchlimit.quota.quota import Quota


_MARGIN = 5e-6
"""Seconds by which a told wait is longer than the true one: bucket and process each round up. A request takes longer to
arrive, so this margin alone never makes another second."""


LARGEST = 10**15 - 1
"""The largest integer that a structured field of HTTP may have."""


def whole_seconds(seconds: float | None) -> int | None:
    """Return what a Retry-After header says, rounded up; None, for no header: never (inf), or unknown (None)."""
    if seconds is None or seconds == math.inf:
        return None
    return min(LARGEST, max(int(seconds > 0.0), math.ceil(seconds - _MARGIN)))


Remains = tuple[int, "Quota", int | None]
"""What this process could still admit of a key, and the `quota` and `binding` of a Decision on it."""
Source = Literal["local", "store", "denied", "fallback", "open", "shadow"]


class Retry:
    """Says when to come back."""

    __slots__ = ()

    retry_after: float | None

    @property
    def retry_after_seconds(self) -> int | None:
        """`retry_after` for a Retry-After header: whole seconds, rounded up; None, for no header: never, or unknown."""
        return whole_seconds(self.retry_after)


@dataclass(frozen=True, slots=True)
class Decision(Retry):
    """Whether a call may go ahead, and what to tell its caller. It is true in a condition if the call is allowed.

    Attributes:
        allowed: whether the call may go ahead.
        limit: the largest cost that can ever pass at once: the burst, or the smallest burst of several bandwidths.
        remaining: tokens that this process could still admit: those it holds and those it last saw in the bucket.
        retry_after: seconds until the same cost is expected to fit; 0 if allowed, inf if it never will.
        reset_after: seconds until the bucket is full again if nobody spends; inf for a rate of 0.
        source: "local" (tokens in memory), "store", "denied" (the store refused a moment ago, and this process
            remembers), "fallback" (`on_failure`, while the store is away), "open" (an operator
            admits everything), or "shadow" (it was to be refused, and its key is in shadow mode).
        quota: the Quota that holds for the key now: that of the code, or one that an operator has set (default None:
            nobody told). Two decisions that differ in it alone are equal.
        binding: which of `quota.bandwidths` has the next token last, or else the fewest (default None: there is one
            alone, or nobody told). It makes no difference either.

    Example:
        >>> from batchlimit import RateLimiter
        >>> decision = RateLimiter.from_url("memory://", "2/hour").decide("ann", 2)
        >>> decision.allowed, decision.remaining, decision.retry_after, decision.source
        (True, 0, 0.0, 'store')
    """

    allowed: bool
    limit: int
    remaining: int
    retry_after: float
    reset_after: float
    source: Source
    quota: "Quota | None" = field(default=None, repr=False, compare=False)
    binding: int | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.allowed


class Draft(Retry):
    """A Decision while it is written, which then is its class: a frozen one takes four times as long to make."""

    __slots__ = tuple(each.name for each in fields(Decision))
