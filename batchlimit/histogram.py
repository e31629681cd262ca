"""How long things took: counts by duration, in few buckets."""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, count

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: the upper bound of each bucket; one more bucket has what took longer."""
_NONE = (0,) * (len(BOUNDS) + 1)


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many things took how long.

    Attributes:
        counts: by bucket, one for each of BOUNDS and one for what took longer (default: none).

    Example:
        >>> durations = Durations()
        >>> durations.add(0.003)
        >>> durations.read().up_to[:5]
        (0, 0, 0, 1, 1)
    """

    counts: tuple[int, ...] = _NONE

    @property
    def total(self) -> int:
        """How many there were."""
        return sum(self.counts)

    @property
    def up_to(self) -> tuple[int, ...]:
        """How many took no longer than each bound; the last one is the total."""
        return tuple(accumulate(self.counts))

    def plus(self, other: "Histogram") -> "Histogram":
        """Return the sum of two.

        Args:
            other: the other one.
        """
        return Histogram(tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))


class Durations:
    """Counts durations. Several threads may add at a time: a step of a `count` is one to all of them, under the GIL."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [count() for _ in _NONE]

    def __repr__(self) -> str:
        return f"<Durations of {self.read().total}>"

    def add(self, seconds: float) -> None:
        """Count one."""
        next(self._counts[bisect_left(BOUNDS, seconds)])

    def read(self) -> Histogram:
        """Return the counts so far."""
        return Histogram(tuple(int(repr(each)[len("count(") : -1]) for each in self._counts))
