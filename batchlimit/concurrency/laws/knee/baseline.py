"""How long calls take when they do not queue: a time for each operation, so that unlike calls share one limit."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_CERTAIN = 40
"""Calls whose median is taken at its word. Of fewer it moves a baseline less, by the root: as far as it is true."""
_BIAS = 1.4
"""How much longer calls may take in the second span of an operation than in its first for the first to be corrected."""

_USUAL = 0.1
"""How far what is usual goes with each span to the mixture that it showed."""
_MOST = 3.0
"""Times what a span just showed that a baseline may be: whatever a queue does, it does not make calls quicker."""


class Reading(NamedTuple):
    """What a span showed against the baselines."""

    medians: Mapping[str, tuple[int, float]]
    """For each operation: how many calls, and their median time in ns."""
    ratio: float
    """How many times as long as without a queue the same calls took: 1 where none waited."""
    weight: float = 1.0
    """How much work a call was on average, in calls of the usual mixture: 1 where there is one operation only."""


class Baselines:
    """The time without a queue of each operation, in ns, learnt from what spans show.

    A median, never a minimum: one lucky call must not set a mark that no other can reach.
    """

    __slots__ = ("_fresh", "_shares", "_times")

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._fresh: set[str] = set()
        self._shares: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"Baselines({', '.join(f'{name!r}: {time / 1e6:.3f} ms' for name, time in self._times.items())})"

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
        return Reading(medians, taken / work, work / calls / self._usual_work(medians, calls))

    def _usual_work(self, medians: Mapping[str, tuple[int, float]], calls: int) -> float:
        for name, (count, _) in medians.items():
            self._shares.setdefault(name, count / calls)
        for name in self._shares:
            self._shares[name] += _USUAL * (medians.get(name, (0, 0.0))[0] / calls - self._shares[name])
        work = sum(share * self._times[name] for name, share in self._shares.items())
        return work / sum(self._shares.values())

    def move(self, reading: Reading, rise: float, fall: float) -> None:
        """Go such a part of the way up, or down, to what a span showed."""
        for operation, (count, median) in reading.medians.items():
            gap = median - self._times[operation]
            moved = self._times[operation] + gap * (rise if gap > 0 else fall) * math.sqrt(min(1.0, count / _CERTAIN))
            self._times[operation] = min(moved, _MOST * median)

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
