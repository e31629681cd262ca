"""How much to lease at a time: the demand of this process, smoothed, and the target that each sizer derives from it."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from batchlimit.base.setting import between
from batchlimit.quota.quota import Quota

KERNEL = 0.25
"""Seconds over which demand is smoothed: long enough for a steady batch, short enough to follow a burst."""


class Demand:
    """Tokens per second that callers of this instance ask for, smoothed by an exponential kernel of 250 ms."""

    __slots__ = ("at", "rate")

    def __init__(self, now: float, rate: float = 0.0) -> None:
        """`rate` is what it was at `now`."""
        self.rate = rate
        self.at = now

    def left(self, now: float) -> float:
        """Return what it is by now if nobody asked since the last observation."""
        return self.rate * math.exp(min(0.0, self.at - now) / KERNEL)

    def is_repeated(self, cost: int) -> bool:
        """Whether more was asked for lately than by one call of this cost."""
        return self.rate * KERNEL > cost

    def observe(self, tokens: int, now: float) -> None:
        """Count `tokens` asked for since the last observation; negative when callers have left the queue."""
        elapsed = now - self.at
        if elapsed <= 0.0:
            self.rate = max(0.0, self.rate + tokens / KERNEL)
            return
        keep = math.exp(-elapsed / KERNEL)
        self.rate = max(0.0, self.rate * keep + (1.0 - keep) * tokens / elapsed)
        self.at = now


class Usage(NamedTuple):
    """What a sizer may look at.

    Attributes:
        quota: the key's Quota.
        demand: tokens per second that callers of this process ask for, smoothed over 0.25 s.
        last: the last target, in tokens; 0 at first.
        left: tokens that were left of it.
        rich: whether the bucket was at least half full when it last answered (default False). Its leases then last
            longer.

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.batching import TimeBatch, Usage
        >>> TimeBatch(seconds=0.1).want(Usage(Quota.parse("1000/s"), demand=200.0, last=0, left=0))
        20
    """

    quota: Quota
    demand: float
    last: int
    left: int
    rich: bool = False


@runtime_checkable
class BatchSizer(Protocol):
    """Says how many tokens a process should hold after its next lease; the bucket may grant fewer.

    Example:
        >>> from batchlimit import RateLimiter
        >>> class Tenth:
        ...     def want(self, usage):
        ...         return usage.quota.largest_cost // 10
        >>> limiter = RateLimiter.from_url("memory://", "1000/s", sizer=Tenth())
        >>> limiter.try_acquire("ann")
        True
    """

    __slots__ = ()

    def want(self, usage: Usage) -> int:
        """Return the target, in whole tokens.

        The limiter asks for what its callers wait for where that is more, and never for more than the smallest burst.
        What this raises reaches the caller whose call led to it. In the background it is logged.

        Args:
            usage: what this process knows of the key.

        Returns:
            The target; less than 0 counts as 0.
        """


@dataclass(frozen=True, slots=True)
class TimeBatch(BatchSizer):
    """The default: as many as callers will ask for in `seconds`, or in 0.4 of the bucket's refill time if that is less.

    Tokens for a longer time would expire with their lease; tokens for a shorter one cost more calls. A bucket at least
    half full leases for longer: for `plenty` seconds, or 0.6 of the refill time. The target is rounded down: one call
    of a key that nobody asked for lately leases nothing more.

    Args:
        seconds: seconds of demand to lease at a time (default 0.4); 0 leases only what callers wait for.
        plenty: the same while the bucket is at least half full (default 1.2).

    Raises:
        ValueError, TypeError: an argument is no finite number of at least 0.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.batching import TimeBatch
        >>> limiter = RateLimiter.from_url("memory://", "1000/s", sizer=TimeBatch(seconds=0.1))
        >>> limiter.close()
    """

    seconds: float = 0.4
    plenty: float = 1.2

    def __post_init__(self) -> None:
        """Say what is wrong, with its value; 0 leases only what callers wait for."""
        between("TimeBatch.seconds", self.seconds, 0.0, math.inf, "[)")
        between("TimeBatch.plenty", self.plenty, 0.0, math.inf, "[)")

    def want(self, usage: Usage) -> int:
        longest, part = (self.plenty, 0.6) if usage.rich else (self.seconds, 0.4)
        quota = usage.quota
        if quota.also:
            fills_in, most = min(each.burst / each.rate for each in quota.bandwidths), quota.largest_cost
        else:
            fills_in, most = quota.burst / quota.rate, quota.burst
        return math.floor(min(usage.demand * min(longest, part * fills_in), most))


@dataclass(frozen=True, slots=True)
class FixedBatch(BatchSizer):
    """Always the same number of tokens: predictable, and wrong for every key whose demand is another.

    Args:
        tokens: whole tokens; 0 leases only what callers wait for.

    Raises:
        ValueError: `tokens` is no whole number of at least 0.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.batching import FixedBatch
        >>> limiter = RateLimiter.from_url("memory://", "1000/s", sizer=FixedBatch(100))
        >>> limiter.close()
    """

    tokens: int

    def __post_init__(self) -> None:
        """Check the size; 0 leases only what callers wait for."""
        if type(self.tokens) is not int or self.tokens < 0:
            raise ValueError(f"a batch must be a whole number of tokens, not {self.tokens!r}")

    def want(self, usage: Usage) -> int:
        return self.tokens


@dataclass(frozen=True, slots=True)
class FractionBatch(BatchSizer):
    """A fixed part of the burst, at least 1 token: grows with the limit, not with the demand.

    Args:
        fraction: the part, from 0 to 1 (default 0.001).

    Raises:
        ValueError, TypeError: `fraction` is no number from 0 to 1.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.batching import FractionBatch
        >>> limiter = RateLimiter.from_url("memory://", "1000/s", sizer=FractionBatch(0.05))
        >>> limiter.close()
    """

    fraction: float = 0.001

    def __post_init__(self) -> None:
        """Say what is wrong, with its value."""
        between("FractionBatch.fraction", self.fraction, 0.0, 1.0, "[]")

    def want(self, usage: Usage) -> int:
        return max(1, math.floor(self.fraction * usage.quota.largest_cost))


@dataclass(frozen=True, slots=True)
class GrowingBatch(BatchSizer):
    """Grows after a batch that was used up and shrinks after one that was not: follows demand without measuring time.

    Args:
        first: whole tokens of the first batch (default 10).
        grow: factor after a batch that was used up (default 1.5), at least 1.
        shrink: factor after a batch that was not (default 0.5), from 0 to 1.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.batching import GrowingBatch
        >>> limiter = RateLimiter.from_url("memory://", "1000/s", sizer=GrowingBatch(first=50))
        >>> limiter.close()
    """

    first: int = 10
    grow: float = 1.5
    shrink: float = 0.5

    def __post_init__(self) -> None:
        """Say what is wrong, with its value."""
        if type(self.first) is not int or self.first < 1:
            raise ValueError(f"GrowingBatch.first must be a whole number of at least 1 token, not {self.first!r}")
        between("GrowingBatch.grow", self.grow, 1.0, math.inf, "[)")
        between("GrowingBatch.shrink", self.shrink, 0.0, 1.0, "[]")

    def want(self, usage: Usage) -> int:
        if usage.last == 0:
            return self.first
        if usage.left:
            return max(1, math.floor(usage.last * self.shrink))
        return math.ceil(min(usage.last * self.grow, usage.quota.largest_cost))


_NUMBERS = (int, float)  # `int | float` would be made at every miss


DEFAULT_SIZER: BatchSizer = TimeBatch()


def wanted(sizer: BatchSizer, usage: Usage) -> int:
    """Return what a sizer wants, as a whole number of tokens from 0 to the smallest burst.

    Raises TypeError where that is no number, and whatever the sizer itself raises.
    """
    want: object = sizer.want(usage)
    if not isinstance(want, _NUMBERS) or want != want:  # nan
        raise TypeError(f"{type(sizer).__name__}.want() must return a whole number of tokens, not {want!r}")
    quota = usage.quota
    return int(min(max(want, 0), quota.largest_cost if quota.also else quota.burst))
