"""What a watcher is, and when a value is too high."""

import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from batchlimit.base.setting import between


@runtime_checkable
class Watcher(Protocol):
    """Looks at one thing once a period. It is polled by one thread at a time, not always by the same.

    Example:
        >>> import os
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.watchers import Watcher
        >>> class LoadWatcher:
        ...     name = "load"
        ...     def poll(self) -> str | None:
        ...         load = os.getloadavg()[0]
        ...         return f"load {load:.1f}" if load > 1000 else None
        >>> isinstance(LoadWatcher(), Watcher)
        True
        >>> ConcurrencyLimiter(watchers=[LoadWatcher()], every=10.0).close()
    """

    @property
    def name(self) -> str:
        """Its name in logs and in the statistics."""

    def poll(self) -> str | None:
        """Look once. It may raise, or block for as long as it likes: the poller has to live with that.

        Returns:
            A reason to back off, with its figures; None if all is well, or if there is nothing to tell by.
        """


class Threshold:
    """Is exceeded from `high` on, until the value falls below `low`.

    Between the two it stays what it was, so that a value that trembles does not switch it. It is pure: values go in, in
    any unit.

    Args:
        high: From this value on it is exceeded (above 0).
        low: Below this value it is exceeded no longer (above 0, at most `high`; None, the default: `high`).

    Raises:
        ValueError: A value is out of its range.

    Example:
        >>> from batchlimit.watchers import Threshold
        >>> threshold = Threshold(0.9, low=0.8)
        >>> [threshold.update(value) for value in (0.85, 0.95, 0.85, 0.75)]
        [False, True, True, False]
    """

    __slots__ = ("exceeded", "high", "low")

    def __init__(self, high: float, low: float | None = None) -> None:
        self.high = between("a threshold", high, 0.0, math.inf, "()")
        self.low = high if low is None else low
        self.exceeded = False
        if not 0 < self.low <= self.high:
            raise ValueError(f"low must be more than 0 and at most the threshold of {high!r}, not {low!r}")

    def __repr__(self) -> str:
        return f"<Threshold: {self.low:g} to {self.high:g}, {'exceeded' if self.exceeded else 'kept'}>"

    def update(self, value: float) -> bool:
        """Take in the value of now.

        Args:
            value: The value, in the unit of `high`.

        Returns:
            True if it is too high.
        """
        self.exceeded = value >= (self.low if self.exceeded else self.high)
        return self.exceeded

    def forget(self) -> None:
        """Take the value for low until it is known again."""
        self.exceeded = False


class Counted(NamedTuple):
    """Counts of one part of the machine, since it began to count."""

    used: float
    passed: float  # `used` is a share of this
    at_once: float = 1.0  # so many may be used at the same time
    seconds: float = 0.0  # in which tasks were held back


class ShareThreshold(Threshold):
    """A threshold between shares of a whole; without `low` it is left below `relief` of the threshold."""

    __slots__ = ("_before",)

    def __init__(self, threshold: object, low: object, relief: float = 1.0) -> None:
        high = between("threshold", threshold, 0.0, 1.0, "(]")
        super().__init__(high, relief * high if low is None else between("low", low, 0.0, 1.0, "(]"))
        self._before: dict[str, Counted] = {}

    def worst(self, seen: Mapping[str, Counted]) -> tuple[float, str, float, float] | None:
        """Return the largest share since the last look if it is too high, with its part, what passed, and seconds."""
        news = list[tuple[float, str, float, float]]()
        for part, now in seen.items():
            before = self._before.get(part, now)
            if (passed := now.passed - before.passed) > 0:  # else nothing came, or the counts began anew
                share = (now.used - before.used) / (passed * now.at_once)  # below 0, so low, if they began anew
                news.append((share, part, passed, now.seconds - before.seconds))
        self._before.update(seen)  # one that cannot be read now goes on where it was
        if not news:
            self.forget()
            return None
        found = max(news)
        return found if self.update(found[0]) else None
