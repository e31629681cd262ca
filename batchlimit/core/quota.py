"""How much a key may spend: Quota, the text it is written in, and which quota a key has."""

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import translate
from typing import Self

# Beyond 2**53 doubles skip whole numbers; three bits less leave the script's arithmetic room for fractions of a token.
LARGEST_BURST = 2**50

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BANDWIDTH = re.compile(
    r"""\s* (?: (?P<amount> NUMBER ) \s*
        (?: (?P<per> / | per ) \s* (?: (?P<count> NUMBER ) \s* )?
        (?: (?P<unit> s | sec | seconds? | m | min | minutes? | h | hr | hours? | d | days? | w | weeks? ) (?![a-z]) \s*
        (?: (?P<word> burst ) \s*
        (?: (?P<burst> WHOLE ) \s* )? )? )? )? )?
    """.replace("NUMBER", r"WHOLE (?: \. WHOLE )?").replace("WHOLE", "[0-9]+ (?: _[0-9]+ )*"),
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
# The pattern reads as far as the text makes sense; what should have come next follows from the last group it filled.
_EXPECTED = {
    None: "an amount of tokens",
    "amount": '"/" or "per"',
    "per": "a unit (s, m, h, d or w)",
    "count": "a unit (s, m, h, d or w)",
    "unit": '"burst", ";" or the end',
    "word": f"a burst from 1 to {LARGEST_BURST}",
    "burst": '";" or the end',
}


@dataclass(frozen=True, slots=True, init=False)
class Quota:
    """`rate` tokens per second sustained, at most `burst` at once; `also`: further bandwidths that must all have room.

    The rate is a finite number; 0 refuses everything, and then the burst is 0. Any other burst is a whole number from
    1 to LARGEST_BURST; None means one second of rate, at least 1. Parts of `also` that have parts are flattened.
    A value of the wrong type raises TypeError, one out of range ValueError.
    """

    rate: float
    burst: int
    also: tuple["Quota", ...]

    # Written by hand, so that the burst may be None coming in and is an int for everyone who reads it.
    def __init__(self, rate: float, burst: int | None = None, also: Iterable["Quota"] = ()) -> None:
        checked = _checked_rate(rate)
        object.__setattr__(self, "rate", checked)
        object.__setattr__(self, "burst", _checked_burst(checked, _one_period(checked) if burst is None else burst))
        object.__setattr__(self, "also", tuple(_flattened(also)))

    @classmethod
    def per_second(cls, n: float, *, burst: int | None = None) -> Self:
        """`n` tokens a second; this and its siblings let one period's amount (at least 1) go at once, unless told."""
        return cls._per(n, _SECONDS["s"], burst)

    @classmethod
    def per_minute(cls, n: float, *, burst: int | None = None) -> Self:
        """`n` tokens in 60 seconds."""
        return cls._per(n, _SECONDS["m"], burst)

    @classmethod
    def per_hour(cls, n: float, *, burst: int | None = None) -> Self:
        """`n` tokens in 3600 seconds."""
        return cls._per(n, _SECONDS["h"], burst)

    @classmethod
    def per_day(cls, n: float, *, burst: int | None = None) -> Self:
        """`n` tokens in 86400 seconds."""
        return cls._per(n, _SECONDS["d"], burst)

    @classmethod
    def _per(cls, n: float, seconds: float, burst: int | None) -> Self:
        amount = _checked_rate(n)
        return cls(amount / seconds, _one_period(amount) if burst is None else burst)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `100/s`, `100 per 2 minutes`, `5/30s`, `1_000/s burst 2000`, or several joined: `5/minute; 100/day`.

            quota     = bandwidth { ";" bandwidth }
            bandwidth = number ( "/" | "per" ) [ number ] unit [ "burst" whole ]
            number    = whole [ "." whole ]
            whole     = digit { [ "_" ] digit }
            unit      = s sec second(s) | m min minute(s) | h hr hour(s) | d day(s) | w week(s)

        Case does not matter, nor does white space between the words. Without "burst" one period's amount, at least 1,
        may go at once. A typo raises ValueError, which says where; anything but a str raises TypeError.
        """
        if not isinstance(text, str):
            raise TypeError(f"a quota is read from a str like '100/s', not from {text!r}")
        first, *also = _read(text)
        return cls(first.rate, first.burst, also)

    @classmethod
    def decode(cls, text: str) -> Self:
        """The quota that `encode` wrote, exactly; ValueError for a text that is no quota in that form."""
        try:
            pairs = [pair.split(":") for pair in text.split(" ")]
            first, *also = [Quota(float(rate), int(burst)) for rate, burst in pairs]
        except ValueError as error:
            raise ValueError(f"not an encoded quota: {text!r}") from error
        return cls(first.rate, first.burst, also)

    def encode(self) -> str:
        """The form for the store, "rate:burst rate:burst": the fingerprint by which hosts see whether they agree.

        Seventeen digits hold a double exactly: equal texts mean equal quotas, and the other way round.
        """
        return " ".join(f"{part.rate:.17g}:{part.burst}" for part in self.bandwidths)

    @property
    def bandwidths(self) -> tuple["Quota", ...]:
        """Every bandwidth as a quota of its own: this one first, then `also`."""
        return (Quota(self.rate, self.burst), *self.also) if self.also else (self,)

    @property
    def largest_cost(self) -> int:
        """The largest cost, in tokens, that can ever fit."""
        return min(part.burst for part in self.bandwidths)

    @property
    def denies_all(self) -> bool:
        """Whether no token will ever come: some rate is 0."""
        return any(part.rate == 0 for part in self.bandwidths)

    def __and__(self, other: "Quota") -> "Quota":
        """Both at once: a call needs room in every bandwidth of either."""
        if not isinstance(other, Quota):
            return NotImplemented
        return Quota(self.rate, self.burst, self.also + other.bandwidths)

    def __str__(self) -> str:
        """The shortest usual way to write it; `parse` reads an equal quota back."""
        return "; ".join(_spelled(part) for part in self.bandwidths)


def _checked_rate(rate: object) -> float:
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise TypeError(f"a rate must be a number, not {rate!r}")
    # Compared, not converted: an int may be larger than any double, and nan is within no bounds.
    if not 0 <= rate <= sys.float_info.max:
        raise ValueError(f"a rate must be a finite number of at least 0, not {rate!r}")
    return float(rate) or 0.0  # -0.0 is 0.0 here: they are equal, so they must encode alike


def _checked_burst(rate: float, burst: object) -> int:
    if isinstance(burst, bool) or not isinstance(burst, int):
        raise TypeError(f"a burst must be a whole number of tokens, not {burst!r}")
    if rate == 0 and burst != 0:
        raise ValueError(f"a rate of 0 refuses everything, so its burst must be 0, not {burst!r}")
    if rate > 0 and not 1 <= burst <= LARGEST_BURST:
        raise ValueError(f"a burst must be from 1 to {LARGEST_BURST} tokens, not {burst!r}")
    return burst


def _one_period(amount: float) -> int:
    return max(1, math.floor(amount)) if amount else 0


def _flattened(also: Iterable[object]) -> Iterator[Quota]:
    for part in also:
        if not isinstance(part, Quota):
            raise TypeError(f"`also` must hold quotas, not {part!r}")
        yield from part.bandwidths


def _read(text: str) -> Iterator[Quota]:
    end = -1
    while end < len(text):
        found = _BANDWIDTH.match(text, end + 1)
        assert found is not None, "every part of the pattern is optional"
        end = found.end()
        complete = found["unit"] is not None and found.lastgroup != "word"
        if not complete or text[end : end + 1] not in ("", ";"):
            raise _typo(text, _EXPECTED[found.lastgroup], end)
        yield _bandwidth(text, found)


def _bandwidth(text: str, found: re.Match[str]) -> Quota:
    count = float(found["count"] or 1)
    if count == 0:
        raise _typo(text, "a count above 0", found.start("count"))
    # Through a float, which is exact in this range: int() refuses thousands of digits with a message of its own.
    burst = None if found["burst"] is None else float(found["burst"])
    if burst is not None and not 1 <= burst <= LARGEST_BURST:
        raise _typo(text, _EXPECTED["word"], found.start("burst"))
    try:
        seconds = count * _SECONDS[found["unit"][0].lower()]
        return Quota._per(float(found["amount"]), seconds, None if burst is None else int(burst))
    except ValueError as error:
        raise _typo(text, f"a quota that can be kept ({error})", found.start("amount")) from error


def _typo(text: str, expected: str, at: int) -> ValueError:
    rest = repr(text[at:]) if text[at:] else "the end"
    return ValueError(f"quota {text!r}: expected {expected} at column {at + 1}: {rest}")


def _spelled(quota: Quota) -> str:
    """The shortest that reads back as `quota`, from the first group of spellings that has one; the last always does."""
    plain, burst = "", f" burst {quota.burst}"
    for digits, tail in ((12, plain), (12, burst), (17, plain), (17, burst)):
        texts = [f"{_fixed(quota.rate * seconds, digits)}/{unit}{tail}" for unit, seconds in _SECONDS.items()]
        if fitting := [text for text in texts if _reads_as(text, quota)]:
            return min(fitting, key=len)
    raise AssertionError(f"17 digits hold every double, but not {quota!r}")


def _fixed(number: float, digits: int) -> str:
    return format(Decimal(f"{number:.{digits}g}"), "f")  # the grammar has no exponents


def _reads_as(text: str, quota: Quota) -> bool:
    try:
        return Quota.parse(text) == quota
    except ValueError:  # a rate near the largest double overflows when it is told per week
        return False


QuotaSource = Quota | str | Mapping[str, Quota | str] | Callable[[str], Quota | str]


def quota_rule(source: QuotaSource) -> Callable[[str], Quota]:
    """Which quota a key has: one for all, a mapping by name or glob pattern, or a function of the key.

    In a mapping the key itself comes first, then the names with `*`, `?` or `[` as case-sensitive patterns in their
    order, and "*" last, wherever it stands. It is copied and its texts are read here, so that a typo fails at start.
    The rule raises ValueError for a key without a quota, and TypeError where a function returns anything else.
    """
    if isinstance(source, Quota | str):
        quota = _as_quota(source, "every key")
        return lambda _key: quota
    if isinstance(source, Mapping):
        return _by_name(source)
    if callable(source):
        return lambda key: _as_quota(source(key), f"key {key!r}")
    raise TypeError(f"quotas come from a Quota, its text, a mapping or a function of the key, not from {source!r}")


def _as_quota(value: object, whose: str) -> Quota:
    if isinstance(value, Quota):
        return value
    if not isinstance(value, str):
        raise TypeError(f"the quota of {whose} must be a Quota or its text, not {value!r}")
    try:
        return Quota.parse(value)
    except ValueError as error:
        raise ValueError(f"the quota of {whose}: {error}") from error


def _by_name(names: Mapping[str, Quota | str]) -> Callable[[str], Quota]:
    if not names:
        raise ValueError('a mapping of quotas needs an entry; "*" stands for every key')
    exact = {_checked_name(name): _as_quota(value, repr(name)) for name, value in names.items()}
    # sorted() is stable: the patterns keep their order and only "*", which would hide those after it, goes last.
    globs = sorted((name for name in exact if set(name) & set("*?[")), key=lambda name: name == "*")
    patterns = [(re.compile(translate(name)).match, exact.pop(name)) for name in globs]

    def rule(key: str) -> Quota:
        if key in exact:
            return exact[key]
        for matches, quota in patterns:
            if matches(key):
                return quota
        raise ValueError(f'no quota for key {key!r}; add a "*" entry for the keys that no other entry names')

    return rule


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a mapping of quotas is keyed by str, not by {name!r}")
    return name
