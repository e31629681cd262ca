"""When a value is too high."""

import sys


def checked_seconds(name: str, seconds: object) -> float:
    """Return a time that can pass: finite, and more than 0."""
    if not 0 < _number(name, seconds) <= sys.float_info.max:
        raise ValueError(f"{name} must be a finite number of more than 0 seconds, not {seconds!r}")
    return float(_number(name, seconds))


def checked_share(name: str, share: object) -> float:
    """Return a share of a whole: more than 0, at most 1."""
    if not 0 < _number(name, share) <= 1:
        raise ValueError(f"{name} must be a share of more than 0 and at most 1, not {share!r}")
    return float(_number(name, share))


def _number(name: str, number: object) -> int | float:
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{name} must be a number, not {number!r}")
    return number


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
        self.high = high
        self.low = high if low is None else low
        self.exceeded = False
        if not 0 < self.high <= sys.float_info.max:
            raise ValueError(f"a threshold must be a finite number of more than 0, not {high!r}")
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


def of_shares(threshold: object, low: object, relief: float = 1.0) -> Threshold:
    """Return a threshold between shares of a whole; without `low` it is left below `relief` of the threshold."""
    high = checked_share("threshold", threshold)
    return Threshold(high, relief * high if low is None else checked_share("low", low))
