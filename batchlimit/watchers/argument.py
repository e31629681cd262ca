"""What the arguments of watchers have in common: seconds, and shares of a whole."""

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
