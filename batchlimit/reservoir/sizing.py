"""How much to lease at a time: what callers of this instance ask for, smoothed, and what each policy makes of it."""

import math
import sys
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from batchlimit.quota.quota import Quota

_KERNEL = 0.25
"""Seconds over which demand is smoothed: long enough for a steady batch, short enough to follow a burst."""


class Demand:
    """Tokens per second that callers of this instance ask for, smoothed by an exponential kernel of 250 ms."""

    __slots__ = ("at", "rate")

    def __init__(self, now: float, rate: float = 0.0) -> None:
        """`rate` is what it was at `now`."""
        self.rate = rate
        self.at = now

    def __repr__(self) -> str:
        return f"<Demand {self.rate:.1f}/s>"

    def observe(self, tokens: int, now: float) -> None:
        """Count `tokens` asked for since the last observation; fewer than none where callers left the line."""
        elapsed = now - self.at
        if elapsed <= 0.0:
            self.rate = max(0.0, self.rate + tokens / _KERNEL)
            return
        keep = math.exp(-elapsed / _KERNEL)
        self.rate = max(0.0, self.rate * keep + (1.0 - keep) * tokens / elapsed)
        self.at = now


class Usage(NamedTuple):
    """What a sizer may look at: the quota, the demand (tokens/s), the last want, and what was left of it (tokens)."""

    quota: Quota
    demand: float
    last: int
    left: int
    rich: bool = False
    """Whether the bucket was at least half full when it last told: its leases then last longer."""


@runtime_checkable
class BatchSizer(Protocol):
    """Says how many tokens an instance should hold after its next lease; the bucket may grant fewer."""

    def want(self, usage: Usage) -> int:
        """Return the target in whole tokens; what callers wait for now is asked for where it is more.

        More than the smallest burst counts as that, less than 0 as 0. What this raises, the caller gets who came upon
        it, and so does a TypeError for what is no number; in the background it is logged. The next ask tries again.
        """
        ...


@dataclass(frozen=True, slots=True)
class TimeBatch:
    """The default: as many as callers will ask for in `seconds`, or in 0.4 of the bucket's refill time if that is less.

    Tokens for a longer time would expire with their lease; tokens for a shorter one cost more calls. From a rich bucket
    they are leased for longer: for `plenty` seconds, or 0.6 of the refill time.
    """

    seconds: float = 0.4
    plenty: float = 1.2

    def __post_init__(self) -> None:
        """Say what is wrong, with its value; 0 leases only what callers wait for."""
        _check("TimeBatch.seconds", self.seconds, 0.0)
        _check("TimeBatch.plenty", self.plenty, 0.0)

    def want(self, usage: Usage) -> int:
        """Return demand x time, rounded down: one call of a key that nobody asked for lately leases nothing more."""
        longest, part = (self.plenty, 0.6) if usage.rich else (self.seconds, 0.4)
        tau = min(min(longest, part * each.burst / each.rate) for each in usage.quota.bandwidths)
        return math.floor(min(usage.demand * tau, usage.quota.largest_cost))


@dataclass(frozen=True, slots=True)
class FixedBatch:
    """Always `tokens`: predictable, and wrong for every key whose demand is another."""

    tokens: int

    def __post_init__(self) -> None:
        """Check the size; 0 leases only what callers wait for."""
        if type(self.tokens) is not int or self.tokens < 0:
            raise ValueError(f"a batch must be a whole number of tokens, not {self.tokens!r}")

    def want(self, usage: Usage) -> int:
        """Return the constant."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class FractionBatch:
    """A fixed part of the burst, 1/1000 by default: grows with the limit, not with the demand."""

    fraction: float = 0.001

    def __post_init__(self) -> None:
        """Say what is wrong, with its value."""
        _check("FractionBatch.fraction", self.fraction, 0.0, 1.0)

    def want(self, usage: Usage) -> int:
        """Return fraction x the smallest burst, at least one and at most all of it."""
        return max(1, math.floor(min(self.fraction, 1.0) * usage.quota.largest_cost))


@dataclass(frozen=True, slots=True)
class GrowingBatch:
    """x1.5 after a batch that was used up, x0.5 after one that was not: follows demand without measuring time."""

    first: int = 10
    grow: float = 1.5
    shrink: float = 0.5

    def __post_init__(self) -> None:
        """Say what is wrong, with its value."""
        if type(self.first) is not int or self.first < 1:
            raise ValueError(f"GrowingBatch.first must be a whole number of at least 1 token, not {self.first!r}")
        _check("GrowingBatch.grow", self.grow, 1.0)
        _check("GrowingBatch.shrink", self.shrink, 0.0, 1.0)

    def want(self, usage: Usage) -> int:
        """Return the last want, grown or shrunk, from one to the smallest burst."""
        if usage.last == 0:
            return self.first
        if usage.left:
            return max(1, math.floor(usage.last * self.shrink))
        return math.ceil(min(usage.last * self.grow, usage.quota.largest_cost))


def _check(name: str, value: object, least: float, most: float = sys.float_info.max) -> None:
    bounds = f"of at least {least:g}" if most > 1.0 else f"from {least:g} to {most:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number {bounds}, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be a finite number {bounds}, not {value!r}")


DEFAULT_SIZER: BatchSizer = TimeBatch()


def wanted(sizer: BatchSizer, usage: Usage) -> int:
    """Return what a sizer wants, as a whole number of tokens from 0 to the smallest burst.

    Raises TypeError where that is no number, and whatever the sizer itself raises.
    """
    want: object = sizer.want(usage)
    if not isinstance(want, int | float) or want != want:  # nan
        raise TypeError(f"{type(sizer).__name__}.want() must return a whole number of tokens, not {want!r}")
    return int(min(max(0, want), usage.quota.largest_cost))
