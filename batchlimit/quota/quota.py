"""How much a key may spend: rates that are sustained and bursts that may go at once."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from batchlimit.base.redaction import shown
from batchlimit.base.setting import of_kind, several
from batchlimit.quota import grammar


@dataclass(frozen=True, slots=True, init=False)
class Quota:
    """What a key may spend: `rate` tokens per second sustained, at most `burst` at once.

    Args:
        rate: tokens per second, a finite number of at least 0; 0 refuses everything.
        burst: whole tokens from 1 to 2**50; 0 if the rate is 0 (default None: one second of rate, at least 1).
        also: further bandwidths that must all have room (default none); parts of parts are flattened.

    Attributes:
        rate: tokens per second, of the first bandwidth.
        burst: whole tokens, of the first bandwidth.
        also: the further bandwidths.
        largest_cost: the largest cost, in tokens, that can ever fit; 0 if some rate is 0.
        encoded: what `encode` returns.

    Raises:
        ValueError, TypeError: an argument is out of range, or of the wrong type.

    Example:
        >>> from batchlimit import Quota
        >>> Quota(100, burst=200) & Quota.per_hour(1000) == Quota.parse("100/s burst 200; 1000/h")
        True
    """

    rate: float
    burst: int
    also: tuple["Quota", ...]
    largest_cost: int = field(init=False, repr=False, compare=False)
    encoded: str = field(init=False, repr=False, compare=False)

    # Written by hand, so that the burst may be None coming in and is an int for everyone who reads it.
    def __init__(self, rate: float, burst: int | None = None, also: Iterable["Quota"] = ()) -> None:
        checked = grammar.checked_rate(rate)
        object.__setattr__(self, "rate", checked)
        object.__setattr__(
            self, "burst", grammar.checked_burst(checked, _one_period(checked) if burst is None else burst)
        )
        parts = [of_kind("each of also", part, Quota, "a Quota") for part in several("also", also, "quotas")]
        object.__setattr__(self, "also", tuple([one for part in parts for one in part.bandwidths]))
        object.__setattr__(self, "largest_cost", min([self.burst, *[part.burst for part in self.also]]))
        parts_encoded = [f"{grammar.encoded_rate(checked)}:{self.burst}", *[part.encoded for part in self.also]]
        object.__setattr__(self, "encoded", " ".join(parts_encoded))

    def __setstate__(self, state: list[Any]) -> None:
        Quota.__init__(self, *state[:3])  # the pickle may be of a version that knew no more

    @classmethod
    def per_second(cls, n: float, *, burst: int | None = None) -> Self:
        """`n` tokens in one second.

        Args:
            n: tokens, a finite number of at least 0; 0 refuses everything.
            burst: whole tokens that may go at once (default None: `n` rounded down, at least 1).

        Returns:
            The quota.

        Raises:
            ValueError, TypeError: an argument cannot work.

        Example:
            >>> str(Quota.per_second(100, burst=200))
            '100/s burst 200'
        """
        return cls._per(n, grammar.SECONDS["s"], burst)

    @classmethod
    def per_minute(cls, n: float, *, burst: int | None = None) -> Self:
        """`n` tokens in 60 seconds.

        Args:
            n, burst: as of `per_second`, and so are errors (default None: `n` rounded down, at least 1).

        Returns:
            The quota.
        """
        return cls._per(n, grammar.SECONDS["m"], burst)

    @classmethod
    def per_hour(cls, n: float, *, burst: int | None = None) -> Self:
        """`n` tokens in 3600 seconds.

        Args:
            n, burst: as of `per_second`, and so are errors (default None: `n` rounded down, at least 1).

        Returns:
            The quota.
        """
        return cls._per(n, grammar.SECONDS["h"], burst)

    @classmethod
    def per_day(cls, n: float, *, burst: int | None = None) -> Self:
        """`n` tokens in 86400 seconds.

        Args:
            n, burst: as of `per_second`, and so are errors (default None: `n` rounded down, at least 1).

        Returns:
            The quota.
        """
        return cls._per(n, grammar.SECONDS["d"], burst)

    @classmethod
    def within(cls, n: int, *, per: float, burst: int | None = None) -> Self:
        """At most `n` tokens in every window of `per` seconds, wherever it begins: what many upstreams count.

        A bucket of `n` in `per` seconds admits up to twice as many in its first window. Here burst and refill together
        are `n`. The larger the burst, the less is sustained.

        Args:
            n: whole tokens, at least 1.
            per: seconds, above 0.
            burst: how many may go at once, 1 to `n` (default None: a tenth of `n`, at least 1). Of the limit
                (`n` + 1 - `burst`) / `n` is sustained, less the refill of 0.25 s, by which a call may be late.

        Returns:
            The quota: a rate and a burst.

        Raises:
            ValueError, TypeError: an argument cannot work.

        Example:
            >>> quota = Quota.within(100, per=60)
            >>> str(quota), quota.burst, round(quota.rate * 60, 1)
            ('100 within 1m', 10, 90.6)
        """
        return cls(*grammar.windowed(n, per, burst))

    @classmethod
    def _per(cls, n: float, seconds: float, burst: int | None) -> Self:
        amount = grammar.checked_rate(n)
        return cls(amount / seconds, _one_period(amount) if burst is None else burst)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a quota from text; without "burst" one period's amount, at least 1, may go at once.

        Args:
            text: `100/s`, `100 per 2 minutes`, `1_000/s burst 2000`, `100 within 1m`; several with `;` between.

        Returns:
            The quota.

        Raises:
            ValueError: a typo; the message says where, and what may be meant.
            TypeError: it is no str.

        Example:
            >>> Quota.parse("5/minute; 100/day").largest_cost
            5
        """
        of_kind("a quota", text, str, "a str like '100/s'")
        try:
            return cls._read(text)
        except ValueError as error:
            if (meant := grammar.respelled(text)) is None or _read_as(meant) is None:
                raise
            raise ValueError(f"{error}; write {meant}") from None

    @classmethod
    def _read(cls, text: str) -> Self:
        first, *also = grammar.read(text, cls._per, lambda *window: cls(*grammar.windowed(*window)))
        return cls(first.rate, first.burst, also)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read what `encode` wrote, exactly.

        Args:
            text: in the form of `encode`.

        Returns:
            The quota.

        Raises:
            ValueError: the text is no quota in that form.

        Example:
            >>> Quota.decode("100/1:200") == Quota(100, burst=200)
            True
        """
        try:
            pairs = [pair.split(":") for pair in of_kind("an encoded quota", text, str, "a str").split(" ")]
            first, *also = [Quota(grammar.decoded_rate(rate), int(burst)) for rate, burst in pairs]
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(f"not an encoded quota: {shown(text)}") from error
        return cls(first.rate, first.burst, also)

    def encode(self) -> str:
        """Write the form for the store, by which limiter instances see whether they agree on a quota.

        Returns:
            "amount/seconds:burst amount/seconds:burst". Equal texts mean equal quotas, and the other way round.

        Example:
            >>> Quota.parse("100/s burst 200").encode()
            '100/1:200'
        """
        return self.encoded

    @property
    def bandwidths(self) -> tuple["Quota", ...]:
        """Every bandwidth as a quota of its own: this one first, then `also`."""
        return (Quota(self.rate, self.burst), *self.also) if self.also else (self,)

    @property
    def denies_all(self) -> bool:
        """Whether no token will ever come: some rate is 0."""
        return self.rate == 0 or any(part.rate == 0 for part in self.also)

    def full_after(self, remaining: float, binding: int | None = None) -> float:
        """Return when a bucket with so many tokens is full again if nobody spends.

        Args:
            remaining: tokens.
            binding: which of `bandwidths` has so many, and is looked at alone (default None: each of them has).

        Returns:
            Seconds; inf if no token ever comes.

        Example:
            >>> Quota.parse("100/s burst 200").full_after(50)
            1.5
        """
        if not self.also:  # as below, for nearly all quotas
            missing = self.burst - remaining
            return math.inf if not self.rate else missing / self.rate if missing > 0 else 0.0
        each = self.bandwidths if binding is None else [self.bandwidths[binding]]
        return max(one.full_after(remaining) for one in each)

    def __and__(self, other: "Quota") -> "Quota":
        """Both at once: a call needs room in every bandwidth of either."""
        if not isinstance(other, Quota):
            return NotImplemented
        return Quota(self.rate, self.burst, self.also + other.bandwidths)

    def __str__(self) -> str:
        """The shortest usual way to write it; `parse` reads an equal quota back."""
        return "; ".join(_spelled(part) for part in self.bandwidths)


def _one_period(amount: float) -> int:
    return max(1, math.floor(amount)) if amount else 0


def _spelled(quota: Quota) -> str:
    window = next((text for text in grammar.windows(quota.rate, quota.burst) if _read_as(text) == quota), None)
    return window or grammar.spell(quota.rate, quota.burst, lambda text: _read_as(text) == quota)


def _read_as(text: str) -> Quota | None:
    try:
        return Quota._read(text)
    except ValueError:  # a typo; or a rate near the largest double, which overflows when it is written per week
        return None
