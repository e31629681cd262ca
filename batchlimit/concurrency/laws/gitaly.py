"""A limit that heeds the machine, not the calls."""

from collections.abc import Sequence

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import setting


class Gitaly:
    """Up by one call each period, down by a factor where a watcher saw a reason: the limit calculator of Gitaly.

    Samples change nothing: the limit also rises where nobody uses it. From 15 to 100 takes 85 periods, of 30 s there.
    `initial` and the bounds are in calls, 1 <= minimum <= initial <= maximum; `factor` is above 0 and below 1, and
    what it leaves is rounded down.
    """

    __slots__ = ("_factor", "_limit", "_maximum", "_minimum")

    def __init__(self, *, initial: int = 15, minimum: int = 5, maximum: int = 100, factor: float = 0.5) -> None:
        self._minimum, self._maximum = setting.bounds(minimum, maximum)
        self._limit = setting.whole("initial", initial)
        if not self._minimum <= initial <= self._maximum:
            raise ValueError(f"initial must be from minimum to maximum, {minimum} to {maximum}, not {initial}")
        self._factor = setting.between("factor", factor, 0.0, 1.0, "()")

    def __repr__(self) -> str:
        return f"<Gitaly {self._limit} of {self._minimum}..{self._maximum}>"

    @property
    def limit(self) -> int:
        return self._limit

    def update(self, sample: Sample) -> int:
        """Return the limit, whatever happened to the call."""
        return self._limit

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        """Take one step for the period: one decrease, however many reasons there were, or an increase for none."""
        if events:
            self._limit = max(self._minimum, int(self._limit * self._factor))
        else:
            self._limit = min(self._maximum, self._limit + 1)
        return self._limit
