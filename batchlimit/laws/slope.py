"""Whether more calls at once bring more answers: the slope of throughput over concurrency."""

import math
from collections import deque

_POINTS = 8
_FEWEST = 3
_SPREAD = 0.1
"""Standard deviation of ln N below which the points lie too close to show a slope."""


class Slope:
    """e = d ln X / d ln N by least squares, over the last spans: N calls at once, X of work done per time.

    Where calls queue, X does not depend on N: e is 0. Where each merely takes longer, X grows with N: e is 1.
    """

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=_POINTS)

    def __repr__(self) -> str:
        return f"<Slope {self.value} of {len(self._points)} points>"

    def add(self, concurrency: float, throughput: float) -> None:
        """Take a point, in place of the oldest."""
        if concurrency > 0 and throughput > 0:
            self._points.append((math.log(concurrency), math.log(throughput)))

    def clear(self) -> None:
        self._points.clear()

    @property
    def value(self) -> float | None:
        """e; None while there are too few points, or too much alike."""
        count = len(self._points)
        if count < _FEWEST:
            return None
        mean_n = sum(n for n, _ in self._points) / count
        mean_x = sum(x for _, x in self._points) / count
        square = sum((n - mean_n) ** 2 for n, _ in self._points)
        if square < count * _SPREAD**2:
            return None
        return sum((n - mean_n) * (x - mean_x) for n, x in self._points) / square
