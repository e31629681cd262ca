"""One bandwidth of a quota: which rates and bursts there may be, and the exact text of a rate."""

import sys

from batchlimit.quota.grammar import LARGEST_BURST
from batchlimit.redaction import shown

SLOWEST_RATE = 1e-9
"""Tokens per second; one in thirty years. What is slower counts in times that no clock of the store can hold."""


def checked_rate(rate: object) -> float:
    """Return the rate (tokens/s); raise TypeError or ValueError if no bucket can have it."""
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise TypeError(f"a rate must be a number, not {shown(rate)}")
    # Compared, not converted: an int may be larger than any double, and nan is within no bounds.
    if not 0 <= rate <= sys.float_info.max:
        raise ValueError(f"a rate must be a finite number of at least 0, not {shown(rate)}")
    if 0 < rate < SLOWEST_RATE:
        raise ValueError(f"a rate must be 0 or at least {SLOWEST_RATE} tokens per second, not {shown(rate)}")
    return float(rate) or 0.0  # -0.0 is 0.0 here: they are equal, so they must encode alike


def checked_burst(rate: float, burst: object) -> int:
    """Return the burst (tokens); raise TypeError or ValueError if no bucket of this rate can have it."""
    if isinstance(burst, bool) or not isinstance(burst, int):
        raise TypeError(f"a burst must be a whole number of tokens, not {shown(burst)}")
    if rate == 0 and burst != 0:
        raise ValueError(f"a rate of 0 refuses everything, so its burst must be 0, not {shown(burst)}")
    if rate > 0 and not 1 <= burst <= LARGEST_BURST:
        raise ValueError(f"a burst must be from 1 to {LARGEST_BURST} tokens, not {shown(burst)}")
    return burst


def encoded_rate(rate: float) -> str:
    """Return `amount/seconds` whose quotient is the rate exactly: a whole amount where there is one, as 1000/86400."""
    for seconds in (1, 60, 3600, 86_400):
        amount = rate * seconds
        if amount < 2**53 and round(amount) / seconds == rate:
            return f"{round(amount)}/{seconds}"
    return f"{rate:.17g}/1"


def decoded_rate(text: str) -> float:
    """Read what `encoded_rate` wrote."""
    amount, seconds = text.split("/")
    return float(amount) / int(seconds)
