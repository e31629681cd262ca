"""Who is guaranteed which part of a concurrency limit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Literal, get_args

Unknown = Literal["spare", "refuse"]
"""What becomes of a call that comes under a name without a share."""

_FINEST = 1_000_000
"""A share is the nearest fraction whose denominator is at most this: 7 % of 100 is 7 then, where ceil(100 * 0.07) is 8,
and six times 1/6 is 1."""

_ROUNDING = 1e-9
"""So much more than 1 may the shares be together: they are floats, and their sum is rounded."""

_LENT_AFTER_NS = 1_000_000_000
"""A strict share that nobody claimed for 1 s is lent to others: who asks every second never finds it taken for long,
and who is silent for longer costs nobody anything."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Shares of the limit (0 to 1, together at most 1) that are guaranteed by name; what is left is anybody's.

    A share of 0 guarantees nothing: its partition gets what is spare, and is counted by its name.

    A partition may always use more than its share as long as nobody else needs it. Who comes under no name, or under
    one that is not here, gets only what is spare. They differ in what happens when a partition comes for its share and
    others are using it:

    - soft (Netflix's way): it enters at once, and the limit is exceeded, at worst by the sum of the shares.
    - strict: the limit is never exceeded. It waits or is refused until the others leave; meanwhile, and for a second
      after it last came, what is free of its share is kept for it.

    Args:
        shares: a dict from names to shares.
        strict: whether the limit is never exceeded; False by default.
        unknown: what becomes of a call under a name that is not in `shares`, as a misspelt one: "spare" (the default)
            lets it have what is spare, "refuse" raises ConcurrencyLimited, for the reason "unknown_partition".
            `statistics().unknown` counts both. A call under no name has what is spare, whatever this says.
    """

    shares: Mapping[str, float]
    strict: bool = field(default=False, kw_only=True)
    unknown: Unknown = field(default="spare", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.shares, Mapping):
            raise TypeError(f"shares must be a dict of names and shares, not {self.shares!r}")
        if not isinstance(self.strict, bool):
            raise TypeError(f"strict must be True or False, not {self.strict!r}")
        if self.unknown not in get_args(Unknown):
            raise ValueError(f"unknown must be 'spare' or 'refuse', not {self.unknown!r}")
        for name, share in self.shares.items():
            _check(name, share)
        if (total := math.fsum(self.shares.values())) > 1 + _ROUNDING:
            raise ValueError(f"the shares must be at most 1 together, not {total:.10g}")
        object.__setattr__(self, "shares", MappingProxyType(dict(self.shares)))


class Partition:
    """One partition's calls. Whoever came under a name without a share is in one without a guarantee."""

    __slots__ = ("_share", "_strict", "asked_ns", "busy", "guaranteed", "name")

    def __init__(self, name: str, share: float = 0.0, *, strict: bool = False) -> None:
        self.name = name
        self._share = Fraction(share).limit_denominator(_FINEST)
        self._strict = strict
        self.busy = 0
        self.guaranteed = 0
        self.asked_ns = -_LENT_AFTER_NS

    def __repr__(self) -> str:
        return f"<Partition {self.name!r}: {self.busy} under way, {self.guaranteed} guaranteed>"

    def resize(self, limit: int) -> None:
        """Take the share of another limit: rounded up as Netflix's; down if strict, or they would not all fit.

        A share of 0 is guaranteed no place, where Netflix guarantees it one.
        """
        whole, rest = divmod(limit * self._share.numerator, self._share.denominator)
        self.guaranteed = whole + (rest > 0 and not self._strict)

    def kept(self, now_ns: int) -> int:
        """Return how many places are to be kept free for it: strict ones that it claimed of late and does not use."""
        return max(0, self.guaranteed - self.busy) if now_ns - self.asked_ns < _LENT_AFTER_NS else 0

    def lent_in(self, now_ns: int) -> int:
        """Return in how many ns what is kept for it will be lent, if nobody claims it."""
        return self.asked_ns + _LENT_AFTER_NS - now_ns


def _check(name: object, share: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a partition must be a str, not {name!r}")
    if not name:
        raise ValueError("the name of a partition must not be empty: that is who comes under none")
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise TypeError(f"the share of {name!r} must be a number from 0 to 1, not {share!r}")
    if not (math.isfinite(share) and 0 <= share <= 1):
        raise ValueError(f"the share of {name!r} must be from 0 to 1, not {share!r}")
