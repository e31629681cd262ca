"""One bandwidth of a quota: which rates and bursts there may be, those of a window, and the exact text of a rate."""

import math
import sys
from collections.abc import Iterator

from batchlimit.base.redaction import shown
from batchlimit.quota.grammar import LARGEST_BURST, SECONDS

SLOWEST_RATE = 1e-9
"""Tokens per second; one in thirty years. What is slower counts in times that no clock of the store can hold."""

_LATE = 0.25
"""Seconds: so late a call may be admitted by a token that a bucket with a small burst has granted."""
_LESS = 1 - 1e-6
"""Of the rate of a window, so that what must stay below a whole token does so after rounding."""


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


def windowed(n: object, per: object, burst: object) -> tuple[float, int]:
    """Return rate and burst of which no window of `per` seconds holds more than `n` tokens; see Quota.within."""
    if isinstance(n, bool) or not isinstance(n, int | float) or not (1 <= n <= LARGEST_BURST and n == math.floor(n)):
        raise ValueError(f"a window has a whole number of tokens from 1 to {LARGEST_BURST}, not {shown(n)}")
    if isinstance(per, bool) or not isinstance(per, int | float) or not 0 < per < math.inf:
        raise ValueError(f"a window lasts more than 0 seconds, and not for ever, not {shown(per)}")
    tokens = int(n)
    at_once = checked_burst(1.0, max(1, tokens // 10) if burst is None else burst)
    if at_once > tokens:
        raise ValueError(f"a burst of {at_once} does not fit in a window of {tokens}")
    # Tokens are whole, so what a window may hold is all but one more than n.
    return (tokens + 1 - at_once) / (per + _LATE) * _LESS, at_once


def windows(rate: float, burst: int) -> Iterator[str]:
    """Yield the texts of windows of one unit that a bandwidth may be of, the shorter ones first."""
    for unit, seconds in SECONDS.items():
        if 0 < (tokens := rate / _LESS * (seconds + _LATE)) < LARGEST_BURST:
            n = round(tokens) + burst - 1
            yield f"{n} within 1{unit}"
            yield f"{n} within 1{unit} burst {burst}"


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
