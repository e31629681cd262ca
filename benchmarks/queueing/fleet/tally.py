"""What a run of many limiters came to."""

import math
from typing import NamedTuple

from benchmarks.queueing.fleet.scenario import FleetScenario

_SLICE = 20 * 10**9
"""ns: no such stretch of a run may be bad, however good the mean is."""
_MOMENT, _CROWD = 10**8, 50
"""ns, and callers that are enough for a share to tell something."""


class FleetFigures(NamedTuple):
    """One run in numbers: shares of 1, and seconds; nan where there is nothing to tell."""

    goodput: float
    """Callers that were answered in time over those of the best limiter with a queue, which saw the same callers."""
    worst_slice: float
    """The same, in the worst 20 s."""
    false_refusals: float
    """The share of all callers that were refused above the share that the best limiter refuses."""
    creep: float
    """The sum of limits in the last third of the run over that of the third before."""
    fairness: float
    """Callers answered in time by the poorest limiter over those by the richest."""
    p99: float
    """Of the callers that were answered, from when they came."""
    p50: float
    worst_moment: float
    """The share of callers refused in the worst 100 ms in which at least 50 came."""


class FleetTally:
    """Counts callers by when they came: callers that the best limiter answers, and callers that the law answers."""

    def __init__(self, scenario: FleetScenario) -> None:
        self._scenario = scenario
        self._from, self._until = (
            int(each * 1e9) for each in (scenario.measured, scenario.seconds - scenario.deadline)
        )
        self._deadline = int(scenario.deadline * 1e9)
        self._came = self._refused = self._best = 0
        self._answered = [0] * len(scenario.members)
        self._slices: dict[int, list[int]] = {}
        self._moments: dict[int, list[int]] = {}
        self._spans: list[int] = []
        self._limits = [0.0, 0.0, 0.0]
        self._looks = [0, 0, 0]

    def come(self, came: int, best: bool) -> None:
        if self._from <= came < self._until:
            self._came += 1
            self._best += best
            self._slices.setdefault(came // _SLICE, [0, 0])[0] += best
            self._moments.setdefault(came // _MOMENT, [0, 0])[0] += 1

    def refuse(self, came: int) -> None:
        if self._from <= came < self._until:
            self._refused += 1
            self._moments[came // _MOMENT][1] += 1

    def answer(self, came: int, now: int, member: int) -> None:
        if self._from <= came < self._until:
            self._spans.append(now - came)
            if now - came <= self._deadline:
                self._answered[member] += 1
                self._slices.setdefault(came // _SLICE, [0, 0])[1] += 1

    def look(self, now: int, limits: int) -> None:
        """Note the sum of limits."""
        third = min(2, int(3 * now / (self._scenario.seconds * 1e9)))
        self._limits[third] += limits
        self._looks[third] += 1

    def figures(self) -> FleetFigures:
        """Sum up."""
        spans, answered = sorted(self._spans), self._answered
        before, last = (total / max(1, looks) for total, looks in zip(self._limits[1:], self._looks[1:], strict=True))
        usual = max((best for best, _ in self._slices.values()), default=0) / 2
        return FleetFigures(
            sum(answered) / self._best if self._best else math.nan,
            min((mine / best for best, mine in self._slices.values() if best > usual), default=math.nan),
            (self._refused - (self._came - self._best)) / self._came if self._came else math.nan,
            last / before if before else math.nan,
            min(answered) / max(answered) if self._scenario.is_equal and max(answered) else math.nan,
            spans[int(0.99 * len(spans))] / 1e9 if spans else math.nan,
            spans[len(spans) // 2] / 1e9 if spans else math.nan,
            max((refused / came for came, refused in self._moments.values() if came >= _CROWD), default=math.nan),
        )
