"""What a concurrency limiter has done so far."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """One partition: how many of its calls are under way, and how many places its share guarantees it now."""

    in_flight: int
    guaranteed: int


@dataclass(frozen=True, slots=True)
class WatcherStatistics:
    """How a watcher did so far: how often it was asked, saw a reason to back off, failed, and was not done in time."""

    name: str
    polls: int
    events: int
    errors: int
    timeouts: int


@dataclass(frozen=True, slots=True)
class ConcurrencyStatistics:
    """A concurrency limiter now, and what it counted since it was made; in calls."""

    limit: int
    in_flight: int
    waiting: int
    succeeded: int
    dropped: int
    ignored: int
    """Of those that are over, how many the law was not told of, the abandoned among them."""
    bypassed: int
    shed: int
    """How many that were under way were told to give up."""
    abandoned: int
    """How many permits were never completed, and were found by the garbage collector."""
    refused: Mapping[str, int]
    """How often which reason refused a call."""
    partitions: Mapping[str, PartitionStatistics]
    """By name; "" is who came under no name that has a share."""
    watchers: tuple[WatcherStatistics, ...]
    unknown: int = 0
    """How many calls came under a name that no partition has; 0 where there are no partitions."""

    @property
    def admitted(self) -> int:
        """How many were admitted under the limit."""
        return self.succeeded + self.dropped + self.ignored + self.in_flight
