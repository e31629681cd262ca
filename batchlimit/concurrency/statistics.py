"""What a concurrency limiter counts, and the refusals that it makes from these counts."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from batchlimit.base.histogram import Durations, Histogram
from batchlimit.concurrency.gate import Gate, Reason
from batchlimit.concurrency.partition import Partition
from batchlimit.errors import ConcurrencyLimited


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
        baselines: How long calls take without a queue, by operation or under "" (seconds; default: unknown).
        last_rtt: How long the call took that was the last to end as a success (seconds; default 0: none has).
        raised_by: How often the limit was raised, by why; see `listen` for the reasons (default: it never was).
        lowered_by: How often the limit was lowered, by why (default: it never was). Under "drain" are the drains.
        ratio: How many times as long as without a queue calls took of late (default 0: the law does not compare).
        settled_limit: The limit; during a drain, the one to go back to (default 0).

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
    last_rtt: float = field(default=0.0, compare=False)
    raised_by: Mapping[str, int] = field(default_factory=dict)
    lowered_by: Mapping[str, int] = field(default_factory=dict)
    ratio: float = 0.0
    settled_limit: int = 0

    @property
    def raised(self) -> int:
        """How often the limit was raised."""
        return sum(self.raised_by.values())

    @property
    def lowered(self) -> int:
        """How often the limit was lowered."""
        return sum(self.lowered_by.values())

    @property
    def admitted(self) -> int:
        """How many calls were admitted under the limit so far."""
        return self.succeeded + self.dropped + self.ignored + self.in_flight


ENDED = "succeeded", "dropped", "ignored", "abandoned", "bypassed", "shed", "unknown"
"""What is counted of calls by how they ended, or entered."""
_SECOND = 1_000_000_000
_RECENT = 16
"""Refusals whose calls the mean rtt is about: `retry_after` is estimated from it."""


class Counts:
    """Counts calls by how they ended, and refusals by reason. Every method requires the lock of the gate."""

    __slots__ = (
        "_mean_ns", "_waits", "abandoned", "bypassed", "dropped", "ignored", "key", "last_rtt_ns", "refused", "shed",
        "succeeded", "unknown",
    )  # fmt: skip

    def __init__(self, key: str | None = None) -> None:
        self.key = key  # whose calls are counted; None: the limiter has one limit for all
        self.succeeded = self.dropped = self.ignored = 0
        self.bypassed = self.abandoned = self.shed = self.unknown = 0
        self.last_rtt_ns = 0
        self._mean_ns = 0.0
        self.refused: defaultdict[str, int] = defaultdict(int)  # a Counter takes 60 ns more
        self._waits: Durations | None = None  # for nobody waits at most keys of a keyed limiter

    @property
    def ended(self) -> int:
        """How many calls that were admitted under the limit are over. It may be read without the lock."""
        return self.succeeded + self.dropped + self.ignored

    @property
    def waits(self) -> Histogram:
        return Histogram() if self._waits is None else self._waits.read()

    def waited(self, ns: int) -> None:
        """Count a caller that waits no longer."""
        if self._waits is None:
            self._waits = Durations()
        self._waits.add(ns / _SECOND)

    def refusal(self, gate: Gate, partition: Partition, reason: Reason, now_ns: int) -> ConcurrencyLimited:
        """Count a refusal at a partition; return it with an estimate of when to come back."""
        self.refused[reason] += 1
        # The mean is of calls that ended just before refusals: to keep it at each call would take 60 ns of every call.
        self._mean_ns += (self.last_rtt_ns - self._mean_ns) / (_RECENT if self._mean_ns else 1)
        wait = self._mean_ns * gate.turns(partition)
        if reason == "partition" and not partition.is_full:
            wait = max(gate.lent_in(now_ns, 0), wait)
        seconds = wait / _SECOND if 0 < wait < math.inf else None
        return ConcurrencyLimited(reason, seconds, gate.limit, gate.in_flight, "", self.key)
