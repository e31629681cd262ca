"""What a run came to, over its measured seconds."""

import math
from typing import NamedTuple

from benchmarks.queueing.scenario import Phase, Scenario


class Figures(NamedTuple):
    """One run in numbers: shares of 1 and seconds; nan where there is nothing to tell."""

    goodput: float
    """Answers in time over what was possible: phase by phase, the lesser of callers that came and capacity x time.

    Callers are counted as they came, so that chance neither helps nor hurts a law. Capacity is the mean: a run whose
    calls happen to be short may come out slightly above 1.
    """
    false_rejections: float
    """Of the callers that came while fewer came than can be served, the share that was turned away in the end."""
    rejected: float
    """Of all callers, the share that was turned away in the end."""
    late: float
    """Of all answers, the share that came after the deadline: work for nothing."""
    p50: float
    """Of all calls that were admitted, seconds from there to the answer."""
    p99: float


class Tally:
    """Counts what it is told of: a caller when it comes, when it is turned away, or when it is answered."""

    __slots__ = ("_came", "_deadline", "_late", "_on_time", "_rejected", "_scenario", "_spans")

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._deadline = scenario, int(scenario.deadline * 1e9)
        self._came = dict.fromkeys(scenario.phases, 0)
        self._rejected = dict.fromkeys(scenario.phases, 0)
        self._on_time = self._late = 0
        self._spans: list[int] = []

    def come(self, phase: Phase) -> None:
        self._came[phase] += 1

    def reject(self, phase: Phase) -> None:
        self._rejected[phase] += 1

    def answer(self, rtt: int, since_first_try: int) -> None:
        """Count an answer: ns since it was admitted, and since its caller first tried."""
        self._spans.append(rtt)
        if since_first_try <= self._deadline:
            self._on_time += 1
        else:
            self._late += 1

    def figures(self) -> Figures:
        """Sum up."""
        scenario, spans = self._scenario, sorted(self._spans)
        possible = sum(min(self._came[phase], scenario.capacity(phase) * time) for phase, time in scenario.spans())
        below = [phase for phase in scenario.phases if scenario.rate(phase) < scenario.capacity(phase)]
        return Figures(
            _ratio(self._on_time, possible),
            _ratio(sum(map(self._rejected.__getitem__, below)), sum(map(self._came.__getitem__, below))),
            _ratio(sum(self._rejected.values()), sum(self._came.values())),
            _ratio(self._late, self._late + self._on_time),
            _quantile(spans, 0.5),
            _quantile(spans, 0.99),
        )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _quantile(ordered: list[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e9 if ordered else math.nan
