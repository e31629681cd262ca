"""Whether more calls at once bring more answers: the slope of throughput over concurrency."""

import math
from collections import deque

_POINTS = 8
_FEWEST = 3
_EVIDENCE = 12.0
"""Calls x variance of ln N that it takes: the throughput of n calls whose durations have a sd of 0.7 of their mean is
true to 0.7 / sqrt(n), and the slope then to 0.7 / sqrt(12), 0.2."""


class Slope:
    """e = d ln X / d ln N by least squares, over the last spans: N calls at once, X of work done per time.

    Where calls queue, X does not depend on N: e is 0. Where each merely takes longer, X grows with N: e is 1.
    """

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: deque[tuple[int, float, float]] = deque(maxlen=_POINTS)

    def __repr__(self) -> str:
        return f"<Slope {self.value} of {len(self._points)} points>"

    def add(self, calls: int, concurrency: float, throughput: float) -> None:
        """Take a point, in place of the oldest."""
        if concurrency > 0 and throughput > 0:
            self._points.appendleft((calls, math.log(concurrency), math.log(throughput)))

    def clear(self) -> None:
        self._points.clear()

    @property
    def value(self) -> float | None:
        """e where N is now: of as few of the last points as tell; None while all of them do not."""
        calls = sum_n = sum_x = sum_nn = sum_nx = 0.0
        for count, (weight, n, x) in enumerate(self._points, 1):
            calls += weight
            sum_n += weight * n
            sum_x += weight * x
            sum_nn += weight * n * n
            sum_nx += weight * n * x
            square = sum_nn - sum_n * sum_n / calls
            if count >= _FEWEST and square >= _EVIDENCE:
                return (sum_nx - sum_n * sum_x / calls) / square
        return None
