"""A limit that heeds the machine, not the calls."""

from collections.abc import Sequence

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import setting


class Gitaly:
    """Up by one call each period, down by a factor if a watcher saw a reason: the limit calculator of Gitaly.

    Samples change nothing: the limit also rises where nobody uses it. From 15 to 100 takes 85 periods.

    Args:
        initial: The first limit (calls, within the bounds, default 15).
        minimum: The least limit (calls, default 5).
        maximum: The largest limit (calls, default 100).
        factor: What a reason to back off leaves of the limit, rounded down (above 0, below 1, default 0.5).

    Raises:
        TypeError: An argument is no number.
        ValueError: An argument is out of its range.

    Example:
        >>> from batchlimit.laws import Gitaly
        >>> law = Gitaly(initial=20)
        >>> law.calibrate([], now_ns=0), law.calibrate(["memory 0.95"], now_ns=0)
        (21, 10)
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
        """How many calls may be under way now."""
        return self._limit

    def update(self, sample: Sample) -> int:
        """Return the limit; a call changes nothing."""
        return self._limit

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        """Take one step for a period: one decrease, however many reasons there were, or one increase for none."""
        if events:
            self._limit = max(self._minimum, int(self._limit * self._factor))
        else:
            self._limit = min(self._maximum, self._limit + 1)
        return self._limit
