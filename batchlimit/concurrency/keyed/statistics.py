"""What a keyed concurrency limiter counted so far, for its user."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from batchlimit.base.histogram import Histogram


@dataclass(frozen=True, slots=True)
class PatternStatistics:
    """All keys of one pattern together; all in calls, but for `keys`.

    Attributes:
        keys: How many keys are in memory now (default 0).
        in_flight: How many calls are under way now (default 0).
        waiting: How many callers wait now (default 0).
        succeeded: Calls that ended as a success (default 0).
        dropped: Calls that load made fail (default 0).
        ignored: Calls that are over and that no law was told of, the abandoned ones included, and what `acquire_all`
            gave back because another key had no room (default 0).
        abandoned: Permits that were never completed; the garbage collector found them (default 0).
        refused: Refusals by reason; see ConcurrencyLimited for the reasons (default: none).
        waits: How long callers waited in the queue, admitted then or not (default: nobody did).

    Example:
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> with KeyedConcurrencyLimiter({"repo:*": 2, "*": 1}) as limiter:
        ...     limiter.acquire("repo:42").success()
        ...     limiter.statistics().patterns["repo:*"].succeeded
        1
    """

    keys: int = 0
    in_flight: int = 0
    waiting: int = 0
    succeeded: int = 0
    dropped: int = 0
    ignored: int = 0
    abandoned: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    waits: Histogram = field(default=Histogram(), compare=False)

    def plus(self, other: "PatternStatistics") -> "PatternStatistics":
        """Return the sum of two.

        Args:
            other: The other one.

        Returns:
            The sum.
        """
        return PatternStatistics(
            self.keys + other.keys,
            self.in_flight + other.in_flight,
            self.waiting + other.waiting,
            self.succeeded + other.succeeded,
            self.dropped + other.dropped,
            self.ignored + other.ignored,
            self.abandoned + other.abandoned,
            Counter(self.refused) + Counter(other.refused),
            self.waits.plus(other.waits),
        )


@dataclass(frozen=True, slots=True)
class KeyStatistics:
    """One key now; see `busiest`.

    Attributes:
        key: The key.
        pattern: The name or pattern that it got its limit from.
        limit: How many of its calls may be under way now.
        in_flight: How many of its calls are under way now.
        waiting: How many callers wait now.
        baselines: How long its calls take without a queue, by operation, as the law holds (seconds; default: it holds
            nothing). Under "" is the one of a law that does not tell operations apart.

    Example:
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> with KeyedConcurrencyLimiter({"repo:*": 2}) as limiter, limiter.acquire("repo:42"):
        ...     limiter.busiest()
        [KeyStatistics(key='repo:42', pattern='repo:*', limit=2, in_flight=1, waiting=0, baselines={})]
    """

    key: str
    pattern: str
    limit: int
    in_flight: int
    waiting: int
    baselines: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyedStatistics:
    """A keyed concurrency limiter now, and what it counted since it was made.

    Attributes:
        patterns: What all keys of a pattern did, by the name or pattern in the limits.

    Example:
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> with KeyedConcurrencyLimiter({"*": 2}) as limiter:
        ...     limiter.statistics().patterns["*"].keys
        0
    """

    patterns: Mapping[str, PatternStatistics]
