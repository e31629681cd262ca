"""The Statistics of one limiter, and the Decisions of its keys."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from batchlimit.base.decision import Decision, Draft, Source
from batchlimit.base.histogram import Histogram
from batchlimit.quota.quota import Quota


@dataclass(frozen=True, slots=True)
class PolicyStatistics:
    """Counts of all keys that went by one entry of the quotas; in tokens, but for the two about keys and `waiting`.

    Attributes:
        keys: keys in use now (default 0); dormant ones are in `Statistics.keys` alone.
        low: those of them whose bucket was last seen with less than 20 % (default 0).
        admitted: tokens admitted (default 0).
        from_store: those of them that callers got by asking the store or in the queue; the others were in memory, or
            `fallback`, or `opened` (default 0).
        fallback: those of them that were admitted without the store (default 0).
        opened: those of them that were admitted while an override said "open" (default 0).
        shadow_refused: those of them that were to be refused by a quota in shadow mode or on trial (default 0).
        refused: tokens refused (default 0).
        by_store: those of them that an answer of the store refused at once; memory refused the others (default 0).
        timed_out: those of them that a caller had wanted to wait for, and that could not come in time (default 0).
        waiting: callers in queues now (default 0).
        waits: how long callers that would wait had to, in a queue or for an answer of the store (default: none had to).

    Example:
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", {"user:*": "2/hour", "*": "1000/s"})
        >>> [limiter.try_acquire("user:ann") for _ in range(3)]
        [True, True, False]
        >>> limiter.statistics().policies["user:*"].refused
        1
    """

    keys: int = 0
    low: int = 0
    admitted: int = 0
    from_store: int = 0
    fallback: int = 0
    opened: int = 0
    shadow_refused: int = 0
    refused: int = 0
    by_store: int = 0
    timed_out: int = 0
    waiting: int = 0
    waits: Histogram = field(default=Histogram(), compare=False)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of one limiter since it was made, or since its process was forked.

    Attributes:
        keys: keys in memory now.
        admitted: tokens admitted.
        refused: tokens refused; builds of Python without the GIL may lose a few, for no lock is taken.
        calls: calls of the store: requests for tokens and give-backs.
        held: tokens leased and not yet spent.
        waiting: callers in queues now.
        owed: tokens used beyond what reservations had estimated, not charged yet.
        fallback: tokens admitted without the store while it was away, part of `admitted`.
        failures: calls that the store did not answer, or not in time. While the circuit is open there are none.
        outages: how often the circuit was opened.
        losses: how often a key's bucket was found to have lost its state.
        available: whether the store is asked; False while the circuit is open for it or for a part of it.
        opened: tokens admitted while an override said "open", part of `admitted`.
        shadow_refused: those of `admitted` that were to be refused by a quota in shadow mode or on trial.
        rules_failures: how often overrides in the store, or a file of rules, could not be used; those of before stayed.
        durations: how long the calls of the store took, those without an answer included.
        policies: counts by the entry of the quotas that a key went by: its name or pattern, "*" for a limiter with one
            quota or a function. The first 200 count for themselves, the others as "other".

    Example:
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "2/hour")
        >>> [limiter.try_acquire("ann") for _ in range(3)]
        [True, True, False]
        >>> statistics = limiter.statistics()
        >>> statistics.admitted, statistics.refused
        (2, 1)
    """

    keys: int
    admitted: int
    refused: int
    calls: int
    held: int
    waiting: int
    owed: int = 0
    fallback: int = 0
    failures: int = 0
    outages: int = 0
    losses: int = 0
    available: bool = True
    opened: int = 0
    shadow_refused: int = 0
    rules_failures: int = 0
    durations: Histogram = field(default=Histogram(), compare=False)
    policies: Mapping[str, PolicyStatistics] = field(default_factory=dict, compare=False)


class Health(NamedTuple):
    """How the store has been; the fields are those of Statistics."""

    failures: int = 0
    outages: int = 0
    available: bool = True
    durations: Histogram = Histogram()


def decision(
    quota: Quota,
    remaining: int,
    retry_after: float,
    source: Source,
    binding: int | None = None,
    levels: Sequence[float] = (),
) -> Decision:
    """Return the Decision on a call that was admitted if `retry_after` (s) is 0, with `remaining` tokens to go on.

    `levels` are the tokens of each bandwidth, where they are known. Never more than the limit remains: what is borrowed
    while the store is away may be more, and nobody can use it.
    """
    largest = quota.largest_cost
    if remaining > largest:
        remaining = largest
    if quota.also and levels:
        full_after = max(each.full_after(level) for each, level in zip(quota.bandwidths, levels, strict=False))
    else:
        full_after = quota.full_after(levels[0] if levels else remaining)
    if retry_after and retry_after < math.inf:
        if not levels:  # by then one more is there
            full_after = min(full_after, retry_after + quota.full_after(min(remaining + 1, largest)))
        full_after = max(full_after, retry_after)  # as in a pause
    made: Any = Draft()
    made.allowed, made.limit, made.remaining = not retry_after, largest, remaining  # four at once would be a tuple
    made.retry_after, made.reset_after, made.source = retry_after, full_after, source
    made.quota, made.binding = quota, binding
    made.__class__ = Decision
    return made  # type: ignore[no-any-return]


def outlook(
    quota: Quota,
    level: int,
    held: int,
    source: Source = "store",
    *,
    denied_for: float = 0.0,
    levels: Sequence[float] = (),
) -> Decision:
    """Return how a call of cost 1 would fare at a bucket of this `level`, of which an instance holds `held` tokens.

    Levels are below 0 where more is granted or owed. Memory refuses the call for `denied_for` seconds.
    """
    if quota.denies_all:
        return decision(quota, 0, denied_for or math.inf, "local")
    remaining = max(0, level) + held
    told = levels or [level] * len(quota.bandwidths)
    wait = 0.0 if remaining else max((1 - at) / each.rate for at, each in zip(told, quota.bandwidths, strict=False))
    return decision(quota, remaining, max(wait, denied_for), source, levels=[at + held for at in levels])


Figures = tuple[int, ...]
"""Counts of one key, as `KeyState.figures` returns them. Those that happened outlast its reservoir."""
