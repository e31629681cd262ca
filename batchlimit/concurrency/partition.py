"""The parts of a concurrency limit: how much of it each is guaranteed, and how much it may have at most."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from sys import getrefcount
from types import MappingProxyType
from typing import Literal, get_args

from batchlimit.base.setting import between, of_kind

Unknown = Literal["spare", "refuse"]
"""What becomes of a call under a name without a share."""

_FINEST = 1_000_000
"""A share is the nearest fraction whose denominator is at most this. So 7 % of 100 is 7, while ceil(100 * 0.07) is 8;
and six times 1/6 is 1."""

_ROUNDING = 1e-9
"""The sum of the shares may exceed 1 by so much: they are floats, and their sum is rounded."""

LENT_AFTER_NS = 1_000_000_000
"""A strict share that no call claimed for 1 s is lent to others. A partition that asks every second never finds its
share taken for long, and one that is silent for longer costs nobody anything."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Shares of the limit that are guaranteed by name; what is left is spare, for anybody.

    A partition may use more than its share, up to its cap, as long as no other one needs it. A share of 0 guarantees
    nothing, but counts calls by its name. The two kinds differ in what happens when a partition comes for its share
    while others use it:

    - soft (as Netflix's): it enters at once. The limit is exceeded, at worst by the sum of the shares.
    - strict: the limit is never exceeded. It waits or is refused until others leave. What is free of its share is kept
      for it meanwhile, and for one second after it last came.

    Args:
        shares: A dict from names to shares (0 to 1 each, together at most 1).
        strict: True if the limit is never exceeded (default False).
        unknown: Whether a call under a name that is not in `shares`, such as a misspelt one, gets what is "spare"
            (default), or "refuse" it ("unknown_partition"). `statistics().unknown` counts both.
        caps: A dict from names to the part of the limit (0 to 1) that a partition may have at most, also while the rest
            is free (default: no caps). It is rounded down, but not below one call, nor below the share; a cap of 0 lets
            no call in. A name without a share may have one; "" is for all calls under no name that is here.

    Raises:
        TypeError, ValueError: An argument is of the wrong type or out of its range, a name is empty, the shares are
            above 1 together, or a cap is below its share.

    Example:
        >>> from batchlimit import ConcurrencyLimiter, Partitions
        >>> from batchlimit.laws import Fixed
        >>> limiter = ConcurrencyLimiter(Fixed(10), partitions=Partitions({"live": 0.7, "batch": 0.2}))
        >>> with limiter.acquire("live"):
        ...     limiter.statistics().partitions["live"].in_flight
        1
        >>> limiter.close()
    """

    shares: Mapping[str, float]
    strict: bool = field(default=False, kw_only=True)
    unknown: Unknown = field(default="spare", kw_only=True)
    caps: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        of_kind("shares", self.shares, Mapping, "a dict of names and shares")
        of_kind("caps", self.caps, Mapping, "a dict of names and parts of the limit")
        of_kind("strict", self.strict, bool, "True or False")
        if self.unknown not in get_args(Unknown):
            raise ValueError(f"unknown must be 'spare' or 'refuse', not {self.unknown!r}")
        for name, share in self.shares.items():
            _check(name, share)
        for name, cap in self.caps.items():
            _check(name or "the calls under no name", cap, "cap")
            if cap < (share := self.shares.get(name, 0.0)):
                raise ValueError(f"the cap of {name!r} must not be below its share of {share!r}, but is {cap!r}")
        if (total := math.fsum(self.shares.values())) > 1 + _ROUNDING:
            raise ValueError(f"the shares must be at most 1 together, not {total:.10g}")
        object.__setattr__(self, "shares", MappingProxyType(dict(self.shares)))
        object.__setattr__(self, "caps", MappingProxyType(dict(self.caps)))

    def __reduce__(self) -> "tuple[partial[Partitions], tuple[dict[str, float]]]":
        return partial(Partitions, strict=self.strict, unknown=self.unknown, caps=dict(self.caps)), (dict(self.shares),)


class Partition:
    """The calls of one partition. Calls under a name without a share are in one partition without a guarantee."""

    __slots__ = ("_cap", "_share", "_strict", "_unused", "asked_ns", "busy", "guaranteed", "marker", "most", "name")

    def __init__(self, name: str, share: float = 0.0, *, strict: bool = False, cap: float | None = None) -> None:
        self.name = name  # "": that of all other calls
        self._share = Fraction(share).limit_denominator(_FINEST)
        self._cap = None if cap is None else Fraction(cap).limit_denominator(_FINEST)
        self._strict = strict
        self.busy = 0  # how many of its calls are under way
        self.guaranteed = 0  # how many places its share guarantees it
        self.most: int | None = None  # how many places it may have; None: it has no cap
        self.asked_ns = -LENT_AFTER_NS  # when a call last came for a place
        self.marker = object()  # each permit and waiter that `busy` counts refers to it, from before that to after it
        self._unused = getrefcount(self.marker)

    @property
    def lost(self) -> int:
        """How many calls are counted whose permit is no more, though nobody took it back."""
        # A signal handler can end a destructor before its first line; but who refers to the marker is counted in C.
        return self.busy - (getrefcount(self.marker) - self._unused)

    def resize(self, limit: int) -> None:
        """Take the share of another limit: rounded up as Netflix does; down if strict, so that all shares fit."""
        whole, rest = divmod(limit * self._share.numerator, self._share.denominator)
        self.guaranteed = whole + (rest > 0 and not self._strict)
        if self._cap is not None:
            self.most = max(math.floor(limit * self._cap), self.guaranteed, int(self._cap > 0))

    @property
    def is_full(self) -> bool:
        """Whether it has all that its cap lets it have."""
        return self.most is not None and self.busy >= self.most

    def kept(self, now_ns: int) -> int:
        """Return how many places are kept free for it: strict ones that it claimed lately and does not use."""
        return max(0, self.guaranteed - self.busy) if now_ns - self.asked_ns < LENT_AFTER_NS else 0


def _check(name: object, share: object, what: str = "share") -> None:
    of_kind("the name of a partition", name, str, "a str")
    if not name:
        raise ValueError("the name of a partition must not be empty: that is who comes under none")
    between(f"the {what} of {name!r}", share, 0.0, 1.0, "[]")
