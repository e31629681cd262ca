"""How long calls take when they do not queue: one time for each operation, so that unlike calls share a limit."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_SHORTEST = 1000.0
"""ns, below which nothing is told apart: coarse clocks say 0."""
_CERTAIN = 40
"""Calls after which a median is taken at its word; of fewer, it moves a baseline in proportion."""


class Reading(NamedTuple):
    """What a span showed against the baselines."""

    medians: Mapping[str, tuple[int, float]]
    """For each operation: how many calls, and their median time in ns."""
    ratio: float
    """How many times as long as without a queue the same calls took: 1 where none waited."""
    work: float
    """ns that these calls would have taken without a queue."""


class Baselines:
    """The time without a queue of each operation, in ns: falls quickly, rises only when told to.

    A median, never a minimum: one lucky call must not set a mark that no other can reach.
    """

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"Baselines({', '.join(f'{name!r}: {time / 1e6:.3f} ms' for name, time in self._times.items())})"

    @property
    def longest(self) -> float:
        """That of the slowest operation, in ns; 0 as long as none is known."""
        return max(self._times.values(), default=0.0)

    def read(self, times: Mapping[str, Sequence[int]]) -> Reading:
        """Compare the times of a span with the baselines; what was never seen before becomes its own baseline.

        Operations count by the work that they bring: what takes ten times as long fills ten times as many places.
        """
        taken = work = 0.0
        medians: dict[str, tuple[int, float]] = {}
        for operation, each in times.items():
            median = max(_SHORTEST, sorted(each)[(len(each) - 1) // 2])
            medians[operation] = len(each), median
            taken += len(each) * median
            work += len(each) * self._times.setdefault(operation, median)
        return Reading(medians, taken / work if work else 1.0, work)

    def fall(self, reading: Reading) -> None:
        """Go half the way down to what was shorter."""
        self._move(reading, 0.0, 0.5)

    def follow(self, reading: Reading, rise: float, fall: float = 0.5) -> None:
        """Go such parts of the way up or down to what a span showed without a queue."""
        self._move(reading, rise, fall)

    def _move(self, reading: Reading, rise: float, fall: float) -> None:
        for operation, (count, median) in reading.medians.items():
            gap = median - self._times[operation]
            self._times[operation] += gap * (rise if gap > 0 else fall) * math.sqrt(min(1.0, count / _CERTAIN))
