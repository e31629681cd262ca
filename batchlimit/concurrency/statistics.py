"""What a concurrency limiter counted so far, for its user."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from batchlimit.histogram import Histogram


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """One partition now.

    Attributes:
        in_flight: How many of its calls are under way.
        guaranteed: How many places its share guarantees it.
        most: How many places its cap lets it have at most (default None: it has no cap).

    Example:
        >>> from batchlimit import ConcurrencyLimiter, Partitions
        >>> from batchlimit.laws import Fixed
        >>> with ConcurrencyLimiter(Fixed(10), partitions=Partitions({"live": 0.7})) as limiter:
        ...     limiter.statistics().partitions["live"]
        PartitionStatistics(in_flight=0, guaranteed=7, most=None)
    """

    in_flight: int
    guaranteed: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class WatcherStatistics:
    """What became of the polls of one watcher so far.

    Attributes:
        name: The name of the watcher.
        polls: How often it was polled.
        events: How often it saw a reason to back off.
        errors: How often it failed.
        timeouts: How often it did not answer within the period.

    Example:
        >>> from batchlimit.watchers import LatencyWatcher, Rounds
        >>> Rounds([LatencyWatcher()], print).statistics()
        (WatcherStatistics(name='latency', polls=0, events=0, errors=0, timeouts=0),)
    """

    name: str
    polls: int
    events: int
    errors: int
    timeouts: int


@dataclass(frozen=True, slots=True)
class ConcurrencyStatistics:
    """A concurrency limiter now, and what it counted since it was made; all in calls.

    Attributes:
        limit: How many calls may be under way now.
        in_flight: How many calls are under way now.
        waiting: How many callers wait now.
        succeeded: Calls that ended as a success.
        dropped: Calls that load made fail.
        ignored: Calls that are over and that the law was not told of, the abandoned ones included.
        bypassed: Calls that `bypass` let in; nothing else counts them.
        shed: Calls under way that were told to give up.
        abandoned: Permits that were never completed; the garbage collector found them.
        refused: Refusals by reason; see ConcurrencyLimited for the reasons.
        partitions: The partitions by name; "" is that of calls under no name that has a share.
        watchers: The watchers, in the order in which they were given.
        unknown: Calls under a name that no partition has (default 0: there are no partitions).
        waits: How long callers waited in the queue, admitted then or not (default: nobody did).
        baselines: How long calls take without a queue, by operation, as the law holds (seconds; default: it holds
            nothing). Under "" is the one of a law that does not tell operations apart.
        raised: How often the law, or somebody who set it, raised the limit (default 0).
        lowered: How often the limit was lowered (default 0).
        last_rtt: How long the call took that was the last to end as a success (seconds; default 0: none has).

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> with ConcurrencyLimiter() as limiter:
        ...     with limiter.acquire():
        ...         pass
        ...     seen = limiter.statistics()
        >>> seen.succeeded, seen.in_flight, seen.refused
        (1, 0, {})
    """

    limit: int
    in_flight: int
    waiting: int
    succeeded: int
    dropped: int
    ignored: int
    bypassed: int
    shed: int
    abandoned: int
    refused: Mapping[str, int]
    partitions: Mapping[str, PartitionStatistics]
    watchers: tuple[WatcherStatistics, ...]
    unknown: int = 0
    waits: Histogram = field(default=Histogram(), compare=False)
    baselines: Mapping[str, float] = field(default_factory=dict)
    raised: int = 0
    lowered: int = 0
    last_rtt: float = field(default=0.0, compare=False)

    @property
    def admitted(self) -> int:
        """How many calls were admitted under the limit so far."""
        return self.succeeded + self.dropped + self.ignored + self.in_flight
