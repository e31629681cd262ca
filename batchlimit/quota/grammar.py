"""The text that quotas are written in, to be read and spelled; and which rates, bursts and windows there may be.

    quota     = bandwidth { ";" bandwidth }
    bandwidth = number ( "/" | "per" | "within" ) [ number ] unit [ "burst" whole ]
    number    = whole [ "." whole ]
    whole     = digit { [ "_" ] digit }
    unit      = s sec second(s) | m min minute(s) | h hr hour(s) | d day(s) | w week(s)

Case does not matter, nor does white space between the words. The caller passes the function
that makes a bandwidth, of the amount, the seconds it is for, and the burst. Another one is for "within".
"""

import math
import re
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TypeVar

from batchlimit.base.redaction import shown

# Beyond 2**53 doubles skip whole numbers; three bits less leave the script's arithmetic room for fractions of a token.
LARGEST_WEIGHT = 100
"""Of a limiter instance. So that sums of weighted instants stay exact for years, or nearly so: what instances accrue
depends on them."""
LARGEST_BURST = 2**50

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BANDWIDTH = re.compile(
    r"""\s* (?: (?P<amount> NUMBER ) \s*
        (?: (?P<per> / | per | within ) \s* (?: (?P<count> NUMBER ) \s* )?
        (?: (?P<unit> s | sec | seconds? | m | min | minutes? | h | hr | hours? | d | days? | w | weeks? ) (?![a-z]) \s*
        (?: (?P<word> burst ) \s*
        (?: (?P<burst> WHOLE ) \s* )? )? )? )? )?
    """.replace("NUMBER", r"WHOLE (?: \. WHOLE )?").replace("WHOLE", "[0-9]+ (?: _[0-9]+ )*"),
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
# The pattern reads as far as the text makes sense; what should have come next follows from the last group it filled.
_EXPECTED = {
    None: "an amount of tokens",
    "amount": '"/", "per" or "within", as in 5/minute,',
    "per": "a unit (s, m, h, d or w)",
    "count": "a unit (s, m, h, d or w)",
    "unit": '"burst", ";" or the end',
    "word": f"a burst from 1 to {LARGEST_BURST}",
    "burst": '";" or the end',
}

T = TypeVar("T")
Build = Callable[[float, float, int | None], T]


def read(text: str, build: Build[T], within: Build[T] | None = None) -> Iterator[T]:
    """Build each bandwidth from (amount, seconds, burst or None); ValueError says where the text is wrong."""
    end = -1
    while end < len(text):
        found = _BANDWIDTH.match(text, end + 1)
        assert found is not None, "every part of the pattern is optional"
        end = found.end()
        complete = found["unit"] is not None and found.lastgroup != "word"
        if not complete or text[end : end + 1] not in ("", ";"):
            raise _typo(text, _EXPECTED[found.lastgroup], end)
        is_window = found["per"].lower() == "within"
        if is_window and within is None:
            raise _typo(text, _EXPECTED["amount"], found.start("per"))
        yield _bandwidth(text, found, within if is_window and within else build)


def _bandwidth(text: str, found: re.Match[str], build: Build[T]) -> T:
    count = float(found["count"] or 1)
    if count == 0:
        raise _typo(text, "a count above 0", found.start("count"))
    # Through a float, which is exact in this range: int() refuses thousands of digits with a message of its own.
    burst = None if found["burst"] is None else float(found["burst"])
    if burst is not None and not 1 <= burst <= LARGEST_BURST:
        raise _typo(text, _EXPECTED["word"], found.start("burst"))
    try:
        seconds = count * SECONDS[found["unit"][0].lower()]
        return build(float(found["amount"]), seconds, None if burst is None else int(burst))
    except ValueError as error:
        raise _typo(text, f"a quota that can be kept ({error})", found.start("amount")) from error


def _typo(text: str, expected: str, at: int) -> ValueError:
    rest = shown(text[at:]) if text[at:] else "the end"
    return ValueError(f"quota {shown(text)}: expected {expected} at column {at + 1}: {rest}")


# Numbers as others write them: 2,000,000, 1e6, 2M.
_FOREIGN = re.compile(
    r"""(?P<before> (?: ^ | ; | burst ) \s* )
        (?P<number> [0-9]{1,3} (?: ,[0-9]{3} )+ | [0-9] [0-9_]* (?: \. [0-9]+ )? )
        (?: e \+? (?P<power> [0-9]{1,2} ) | \s* (?P<suffix> [kmgb] ) )?
        (?= \s* (?: / | per | within | ; | $ ) )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_BETWEEN = re.compile(r"(?<=[a-z])\s*[,|]\s*(?=[0-9])", re.IGNORECASE | re.ASCII)
"""What others write between bandwidths. A comma after a digit may be one of thousands."""
_LONG = re.compile(r"(?<!\s)\s*(?:/|\bper\b)\s*([1-9][0-9]?)?\s*(month|year)s?\b", re.IGNORECASE | re.ASCII)
"""Units without a length of their own."""
_POWERS = {"k": 3, "m": 6, "g": 9, "b": 9}


def respelled(text: str) -> str | None:
    """Return a text as quotas have it: "2_000_000/minute" for "2M/minute", "5/30d" for "5/month"; None: it is so."""
    days = {"month": 30, "year": 365}
    found = _FOREIGN.sub(_own, _BETWEEN.sub("; ", text))
    found = _LONG.sub(lambda long: f"/{int(long[1] or 1) * days[long[2].lower()]}d", found).strip()
    return None if found == text.strip() else found


def _own(found: re.Match[str]) -> str:
    if not (found["power"] or found["suffix"] or "," in found["number"]):
        return found[0]
    power = int(found["power"] or 0) or _POWERS.get((found["suffix"] or "").lower(), 0)
    number = Decimal(re.sub("[,_]", "", found["number"])).scaleb(power)
    return f"{found['before']}{int(number):_}" if number == int(number) else found[0]


def spell(rate: float, burst: int, reads_back: Callable[[str], bool]) -> str:
    """Return the shortest text that reads back, of the first group of spellings that has one; the last always does."""
    told, units = f" burst {burst}", SECONDS.items()
    short, exact = (  # the grammar has no exponents
        [f"{format(Decimal(f'{rate * seconds:.{digits}g}'), 'f')}/{unit}" for unit, seconds in units]
        for digits in (12, 17)
    )
    whole = [text + told for text in short if "." not in text and not text.endswith("w")]
    periods = [f"{burst}/{burst / rate / seconds:.0f}{unit}" for unit, seconds in units if rate]
    for texts in (short, whole, periods, [text + told for text in short], exact, [text + told for text in exact]):
        if fitting := [text for text in texts if reads_back(text)]:
            return min(fitting, key=len)
    raise AssertionError(f"17 digits hold every double, but not {shown(rate)}")


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
    if isinstance(per, bool) or not isinstance(per, int | float) or not 0 < per <= sys.float_info.max:
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
