"""Lengths of time, as numbers of seconds or in the words of quotas."""

import math

from batchlimit.quota.grammar import read
from batchlimit.redaction import shown


def seconds_of(length: object) -> float:
    """Return a length of time in seconds: 60, 0.5, "60s", "1m", "1.5h", "1d"; ValueError or TypeError for another."""
    if isinstance(length, str):
        try:
            (seconds,) = read(f"1/{length}", lambda _amount, seconds, _burst: seconds)
        except ValueError as error:
            raise ValueError(f'a length of time is like 60, "60s", "1m" or "1d", not {shown(length)}') from error
        return seconds
    if isinstance(length, bool) or not isinstance(length, int | float):
        raise TypeError(f'a length of time is like 60, "60s", "1m" or "1d", not {shown(length)}')
    if not 0.0 <= length < math.inf:
        raise ValueError(f"a length of time is at least 0 seconds, and finite, not {shown(length)}")
    return float(length)
