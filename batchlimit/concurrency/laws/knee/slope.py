"""Whether more calls at once bring more answers: the slope of throughput over concurrency."""

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from batchlimit.concurrency.laws.knee.span import Span

_POINTS = 8
_FEWEST = 3
_EVIDENCE = 12.0
"""Calls x variance of ln N that it takes. The throughput of n calls whose durations have a sd of 0.7 of their mean is
true to 0.7 / sqrt(n); the slope is then true to 0.7 / sqrt(12), that is 0.2."""


class Point(NamedTuple):
    """A span in which the limit was in use: N and X, as logarithms, and how many calls they are of."""

    calls: int
    ln_n: float
    """N: calls under way on average."""
    ln_x: float
    """X: calls that ended per time, each as heavy as its work; so it does not matter which came."""

    def halfway(self, other: "Point") -> "Point":
        """Return the middle of both."""
        return Point(self.calls + other.calls, (self.ln_n + other.ln_n) / 2, (self.ln_x + other.ln_x) / 2)


def point_of(span: Span, weight: float) -> Point | None:
    """Return the point of a span whose calls were so heavy; None where none was timed, or all were dropped."""
    throughput = (span.count - span.dropped) * weight / span.length
    if min(span.concurrency, throughput) <= 0:
        return None
    return Point(span.count, math.log(span.concurrency), math.log(throughput))


class Slope:
    """e = d ln X / d ln N by least squares, over the last spans.

    Where calls queue, X does not depend on N: e is 0. Where each call merely takes longer, X grows with N: e is 1. The
    time that calls take cannot tell these apart: it is N / X in both.
    """

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=_POINTS)

    def __repr__(self) -> str:
        return f"<Slope {self.value} of {len(self._points)} points>"

    def add(self, point: Point) -> None:
        """Take a point, in place of the oldest."""
        self._points.appendleft(point)

    def clear(self) -> None:
        """Forget all: what comes is another story."""
        self._points.clear()

    @property
    def value(self) -> float | None:
        """The slope where N is now: of as few of the last points as tell; None while all of them do not."""
        for count in range(_FEWEST, len(self._points) + 1):
            fit = _Fit(point for point, _ in zip(self._points, range(count), strict=False))
            if fit.evidence >= _EVIDENCE:
                return fit.slope
        return None


def between(here: Point, there: Point) -> float | None:
    """Return e of two points; None where they lie too close to tell."""
    apart = there.ln_n - here.ln_n
    return (there.ln_x - here.ln_x) / apart if abs(apart) > 0.1 else None


class _Fit:
    """A straight line through points, each as heavy as it has calls."""

    __slots__ = ("evidence", "slope")

    def __init__(self, points: Iterable[Point]) -> None:
        some = list(points)
        calls = sum(point.calls for point in some)
        mean_n = sum(point.calls * point.ln_n for point in some) / calls
        mean_x = sum(point.calls * point.ln_x for point in some) / calls
        self.evidence = sum(point.calls * (point.ln_n - mean_n) ** 2 for point in some)
        both = sum(point.calls * (point.ln_n - mean_n) * (point.ln_x - mean_x) for point in some)
        self.slope = both / self.evidence if self.evidence else math.nan
