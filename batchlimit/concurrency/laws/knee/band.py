"""How much longer than without a queue calls may take: where a limit grows, holds, or shrinks."""

import math

_SLACK = 1.2
"""Calls in line that c workers are allowed, in square roots of c: arrivals are random, and a shorter line runs dry."""
_WIDEST = 3.0
"""The most that the rule above allows, at limits of 1 to 3, where it stands for nothing."""
_ROOM, _LITTLE_ROOM = 0.75, 0.95
"""Parts of the line that is allowed, up to which a limit grows fast, and up to which it grows at all."""
_GENTLE, SHARPEST = 0.95, 0.6
_FAR = 1.2
"""Times the allowed ratio from which gently is too slow."""


class Band:
    """Judges a ratio: the time that calls took over the time that they take without a queue.

    A share 1 - 1 / ratio of the calls under way is in line, by Little's law. Each limiter is allowed a line of 1.2
    sqrt(L). The ratio is common to all that share a backend. So a larger limit finds its line too long, and a smaller
    one finds room, until they are alike.
    """

    __slots__ = ("_tolerance",)

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance

    def __repr__(self) -> str:
        return f"Band({self._tolerance})"

    def allowed(self, limit: float) -> float:
        """Return the largest ratio at which the limit holds: the tolerance, or what a line of 1.2 sqrt(L) makes."""
        return max(self._tolerance, 1 / max(1 / _WIDEST, 1 - _SLACK / math.sqrt(limit)))

    def has_room(self, ratio: float, limit: float) -> bool:
        """Return whether so few are in line that more may come."""
        return self._line(ratio, limit) <= _ROOM

    def has_little_room(self, ratio: float, limit: float) -> bool:
        """Return whether a few more may come."""
        return self._line(ratio, limit) <= _LITTLE_ROOM

    def _line(self, ratio: float, limit: float) -> float:
        """The line, as a part of what is allowed."""
        return (1 - 1 / ratio) / (1 - 1 / self.allowed(limit))

    def is_far(self, ratio: float, limit: float) -> bool:
        """Return whether far more are in line than may be."""
        return ratio > _FAR * self.allowed(limit)

    def factor(self, ratio: float, limit: float, lasts: bool) -> float:
        """Return what to multiply the limit by: a span alone may be a pause, which is not answered sharply."""
        if ratio <= self.allowed(limit):
            return 1.0
        # The root goes half the way, for the baseline may be wrong.
        return max(SHARPEST, math.sqrt(self.allowed(limit) / ratio)) if lasts else _GENTLE
