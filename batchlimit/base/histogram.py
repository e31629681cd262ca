"""How long things took: counts by duration, in few buckets."""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, count
from math import inf, nextafter
from operator import add

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: the upper bound of each bucket; one more bucket has what took longer."""
_NONE = (0,) * (len(BOUNDS) + 1)
_NO_TIME = (0.0,) * (len(BOUNDS) + 1)


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many things took how long.

    Attributes:
        counts: by bucket, one for each of BOUNDS and one for what took longer (default: none).
        seconds: what those of each bucket took together (default: nothing).

    Example:
        >>> durations = Durations()
        >>> durations.add(0.003)
        >>> durations.read().up_to[:5]
        (0, 0, 0, 1, 1)
    """

    counts: tuple[int, ...] = _NONE
    seconds: tuple[float, ...] = _NO_TIME

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def up_to(self) -> tuple[int, ...]:
        """How many took no longer than each bound; the last one is the total."""
        return tuple(accumulate(self.counts))

    def plus(self, other: "Histogram") -> "Histogram":
        return Histogram(tuple(map(add, self.counts, other.counts)), tuple(map(add, self.seconds, other.seconds)))

    def since(self, before: "Histogram") -> tuple[list[tuple[float, int]], "Histogram"]:
        """Return what was added, as mean durations and how many took so long, and the histogram that they make."""
        more: list[tuple[float, int]] = []
        counts, seconds = list(before.counts), list(before.seconds)
        for bucket, total in enumerate(self.counts):
            if (many := total - counts[bucket]) > 0:
                # Rounding, or a thread that adds meanwhile, may have put it into another bucket.
                lowest = nextafter(BOUNDS[bucket - 1], inf) if bucket else 0.0
                mean = max(lowest, min((self.seconds[bucket] - seconds[bucket]) / many, (*BOUNDS, inf)[bucket]))
                more.append((mean, many))
                counts[bucket], seconds[bucket] = total, seconds[bucket] + mean * many
        return more, Histogram(tuple(counts), tuple(seconds))


class Durations:
    """Counts durations. Several threads may add at a time: under the GIL none loses what another one adds.

    A step of a `count` is one to all of them, and no thread loses the GIL within an addition that calls nothing.
    """

    __slots__ = ("_counts", "_seconds")

    def __init__(self) -> None:
        self._counts, self._seconds = [count() for _ in _NONE], list(_NO_TIME)

    def add(self, seconds: float) -> None:
        bucket = bisect_left(BOUNDS, seconds)
        next(self._counts[bucket])
        self._seconds[bucket] += seconds

    def read(self) -> Histogram:
        return Histogram(tuple(int(repr(each)[len("count(") : -1]) for each in self._counts), tuple(self._seconds))
