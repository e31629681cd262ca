"""How long calls take when they do not queue: a time for each operation, so that unlike calls share one limit."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_CERTAIN = 40
"""Calls whose median is taken at its word. Of fewer it moves a baseline less, by the root: as far as it is true."""
_BIAS = 3.0
"""How much longer calls may take in the second span of an operation than in its first for the first to be corrected."""
_MOST = 3.0
"""Times what a span just showed that a baseline may be: whatever a queue does, it does not make calls quicker."""

_STILL = (0.75, 1.3)
"""Ratios in a drain that chance may make of a baseline that is right."""
_STILL_RISE, _STILL_FALL, _MOVE = 0.15, 0.4, 0.9
"""How far a baseline goes with a drain that shows about the same, and with one that shows another time."""
_SHOWN = 10
"""Calls of a drain that are taken at their word where they were quicker: no queue makes calls quicker."""


class Reading(NamedTuple):
    """What a span showed against the baselines."""

    medians: Mapping[str, tuple[int, float]]
    """For each operation: how many calls, and their median time in ns."""
    ratio: float
    """How many times as long as without a queue the same calls took: 1 where none waited."""


class Baselines:
    """The time without a queue of each operation, in ns, learnt from what spans show.

    A median, never a minimum: one lucky call must not set a mark that no other can reach.
    """

    __slots__ = ("_fresh", "_times")

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._fresh: set[str] = set()

    def __repr__(self) -> str:
        return f"Baselines({', '.join(f'{name!r}: {time / 1e6:.3f} ms' for name, time in self._times.items())})"

    @property
    def seconds(self) -> dict[str, float]:
        """Each of them by operation, in seconds."""
        return {name: time / 1e9 for name, time in self._times.items()}

    @property
    def longest(self) -> float:
        """That of the slowest operation, in ns; 0 as long as none is known."""
        return max(self._times.values(), default=0.0)

    def read(self, times: Mapping[str, Sequence[int]]) -> Reading:
        """Compare a span with the baselines; an operation that was never seen before sets its own.

        Operations count by the work that they bring: what takes ten times as long fills ten times as many places.
        """
        calls = sum(map(len, times.values()))
        if not calls:
            return Reading({}, 1.0)
        medians = {name: (len(each), float(sorted(each)[(len(each) - 1) // 2])) for name, each in times.items()}
        taken = sum(count * median for count, median in medians.values())
        work = sum(count * self._baseline(name, median) for name, (count, median) in medians.items())
        return Reading(medians, taken / work)

    def move(self, reading: Reading, rise: float, fall: float) -> None:
        """Go such a part of the way up, or down, to what a span showed."""
        for operation, (count, median) in reading.medians.items():
            gap = median - self._times[operation]
            moved = self._times[operation] + gap * (rise if gap > 0 else fall) * math.sqrt(min(1.0, count / _CERTAIN))
            self._times[operation] = min(moved, _MOST * median)

    def settle(self, reading: Reading, may_rise: bool) -> float:
        """Go towards what a drain showed; return by how much the longest one changed, as a factor."""
        before = self.longest
        if self.is_far_off(reading.ratio):
            self._fall(reading)
        else:
            is_still = reading.ratio <= _STILL[1]
            rise, fall = (_STILL_RISE, _STILL_FALL) if is_still else (_MOVE, _MOVE)
            self.move(reading, rise if may_rise else 0.0, fall)
        return self.longest / before

    @staticmethod
    def is_far_off(ratio: float) -> bool:
        """Return whether calls were so much quicker in a drain that the next one may show even more."""
        return ratio < _STILL[0]

    def _fall(self, reading: Reading) -> None:
        for operation, (count, median) in reading.medians.items():
            gap = min(0.0, median - self._times[operation])
            self._times[operation] += gap * math.sqrt(min(1.0, count / _SHOWN))

    def _baseline(self, operation: str, median: float) -> float:
        if operation not in self._times:
            self._times[operation] = median
            self._fresh.add(operation)
        elif operation in self._fresh:
            # Of its first calls the short ones end first. Where they took much longer next, that was a queue.
            self._fresh.remove(operation)
            if median < _BIAS * self._times[operation]:
                self._times[operation] = median
        return self._times[operation]
