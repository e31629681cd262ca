"""What the calls of a window have in common: an rtt for all of them, the most in flight, whether any was dropped."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import setting


class Summary(NamedTuple):
    """A window that is over; at least one call was in it."""

    calls: int
    """How many calls it is about."""
    shortest_ns: int
    """The least rtt, in ns."""
    rtt_ns: int
    """The rtt that stands for all, in ns."""
    in_flight: int
    """The most calls that were under way at once."""
    dropped: bool
    """Whether load made any of them fail."""


class Window(Protocol):
    """Samples go in, a summary comes out. It belongs to one law."""

    @property
    def capacity(self) -> int | None:
        """How many samples fit; None: any number."""
        ...

    def add(self, sample: Sample) -> None:
        """Take in a call that is over."""
        ...

    def take(self) -> Summary:
        """Return the summary of what was added since the last one, at least one sample, and begin anew."""
        ...


class AverageWindow:
    """The mean stands for all, in whole ns, rounded down. Dropped calls count in it."""

    __slots__ = ("_count", "_dropped", "_in_flight", "_shortest_ns", "_sum_ns")

    capacity = None

    def __init__(self) -> None:
        self._count = self._sum_ns = self._shortest_ns = self._in_flight = 0
        self._dropped = False

    def __repr__(self) -> str:
        return f"<AverageWindow of {self._count}>"

    def add(self, sample: Sample) -> None:
        rtt = sample.rtt_ns
        if not self._count or rtt < self._shortest_ns:
            self._shortest_ns = rtt
        self._count += 1
        self._sum_ns += rtt
        self._in_flight = max(self._in_flight, sample.in_flight)
        self._dropped = self._dropped or sample.dropped

    def take(self) -> Summary:
        mean = self._sum_ns // self._count
        summary = Summary(self._count, self._shortest_ns, mean, self._in_flight, self._dropped)
        self._count = self._sum_ns = self._shortest_ns = self._in_flight = 0
        self._dropped = False
        return summary


class PercentileWindow:
    """The rtt at `part` (0.5: the median) of the first `capacity` calls stands for all.

    Calls beyond the capacity are as if they had not been, their drops and calls in flight included, as in the original.
    """

    __slots__ = ("_dropped", "_in_flight", "_part", "_rtts_ns", "capacity")

    def __init__(self, part: float, capacity: int) -> None:
        self._part = setting.between("part", part, 0.0, 1.0, "()")
        self.capacity = setting.whole("capacity", capacity)
        self._rtts_ns: list[int] = []
        self._in_flight, self._dropped = 0, False

    def __repr__(self) -> str:
        return f"<PercentileWindow of {len(self._rtts_ns)}: p{100 * self._part:g}>"

    def add(self, sample: Sample) -> None:
        if len(self._rtts_ns) < self.capacity:
            self._rtts_ns.append(sample.rtt_ns)
            self._in_flight = max(self._in_flight, sample.in_flight)
            self._dropped = self._dropped or sample.dropped

    def take(self) -> Summary:
        rtts = self._rtts_ns
        summary = Summary(len(rtts), min(rtts), percentile(rtts, self._part), self._in_flight, self._dropped)
        self._rtts_ns, self._in_flight, self._dropped = [], 0, False
        return summary


def percentile(values: Sequence[int], part: float) -> int:
    """Return the value that ranks n x part among n, rounded to the nearest rank, halves up.

    A rank below the first is the first; the original of the windows raises there.
    """
    rank = math.floor(len(values) * part + 0.5)
    return sorted(values)[max(1, rank) - 1]
