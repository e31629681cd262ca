"""How allowances grow with a limit: what laws take for a queue that is short."""

import math


def log10(limit: int) -> int:
    """Return the decimal logarithm of `limit`, rounded down, at least 1. Counted in digits, it is exact."""
    return 1 if limit < 100 else len(str(limit)) - 1


def square_root(limit: int) -> int:
    """Return the square root of `limit`, rounded down, at least 4: what Gradient lets queue unless told otherwise."""
    return max(4, math.isqrt(limit))
