"""A bucket of which nobody leases: it is refilled, compared, and charged, as lua/spend.lua does it."""

import math
from collections.abc import Iterator

from batchlimit.bucket.fair_share import FAR, HEARD, MARGIN, OVER, QUIET, SETTLES, Band, bands_of, lease_of, rounded
from batchlimit.bucket.instance_table import InstanceTable, Reserved
from batchlimit.bucket.messages import Spend, Spent
from batchlimit.quota.quota import Quota

_SECOND = 1_000_000


class SpendableBucket:
    """The levels of one quota's bandwidths; `now` is an instant in us, never a clock."""

    __slots__ = (
        "_bands",
        "_epoch",
        "_heard",
        "_known",
        "_levels",
        "_now",
        "_paused",
        "_quota",
        "_rank",
        "_refused",
        "_reserved",
        "_shadow",
        "_since",
        "_table",
        "_time",
        "_used",
        "_version",
    )

    def __init__(self, quota: Quota, now: int, fill: float = 1.0) -> None:
        self._quota, self._version, self._epoch, self._now, self._time = quota, 1, now, 0, 0
        self._known = 0  # until when a refund is remembered
        self._since: int | None = None  # when the quota was set that the bucket obeys; None: not yet asked
        self._rank = 0, 0  # of that quota: rules, and revision
        self._heard: int | None = None  # when an instance of this rank asked for it; None: all agree, at rank 0
        self._bands = bands_of(quota)
        self._levels: list[float] = [math.floor(band.burst * fill) for band in self._bands]
        self._table = InstanceTable()
        self._reserved: Reserved | None = None
        self._paused: int | None = None  # until when nothing is admitted, or was
        self._used = 0  # tokens granted, less those that came back
        self._refused = 0  # tokens that instances refused their callers
        self._shadow = 0  # tokens that they admitted, and a quota in shadow mode was to refuse

    def offer(self, spend: Spend, now: int) -> Spent | None:
        """Say what a spend would get, and change nothing; None: `take` has to say what is there."""
        is_young = self._since is None
        if spend.quota != self._quota or not (is_young or self._rank == (spend.rules, spend.revision)):
            return None
        instant = max(self._now, now - self._epoch)
        if not self._is_plain(instant):
            return None
        before, self._now = (self._levels[:], self._now, self._time), instant
        self._flow()
        wait = max((spend.cost - level) / band.rate for band, level in self._each())
        told = Spent(wait <= 0, rounded(wait) / _SECOND if wait > 0 else 0.0, self._epoch, self._told())
        self._levels, self._now, self._time = before
        return None if is_young and wait > 0 else told

    def charge(self, spend: Spend, now: int) -> Spent:
        """Spend what is offered now."""
        self._now = max(self._now, now - self._epoch)
        self._flow()
        if self._is_leased:
            self._table.clear()
            self._reserved = None
        self._levels = [level - spend.cost for level in self._levels]
        self._used += spend.cost
        since, rank = (
            self._now - round(spend.age * _SECOND) + (FAR if spend.rules else 0),
            (spend.rules, spend.revision),
        )
        is_first, self._since = self._since is None, since if self._since is None else max(self._since, since)
        if (any(rank) and is_first) or (self._heard is not None and self._now - self._heard >= HEARD):
            self._rank, self._heard = rank, self._now
        return Spent(True, 0.0, self._epoch, self._told())

    def expires_in(self) -> int:
        """Return after how many us without a call the bucket is as good as a new one."""
        to_full = max((band.burst - level) / band.rate for band, level in self._each())
        return max(math.ceil(to_full + lease_of(self._bands)) + MARGIN, self._known - self._now)

    @property
    def _is_leased(self) -> bool:
        return self._table.active > 0 or self._reserved is not None

    @property
    def _left(self) -> int:
        """How long (us) the bucket is paused yet."""
        return 0 if self._paused is None else max(0, self._paused - self._now)

    def _is_plain(self, now: int) -> bool:
        """Whether nobody leases of it, or nobody was heard for so long that all leases are over."""
        is_quiet = now - self._time >= QUIET and self._known <= now
        return is_quiet or not self._is_leased

    def _flow(self) -> None:
        """Refill a plain bucket."""
        if self._is_leased:
            self._refill(self._time + OVER)
        self._refill(self._now, leased=0)

    def _told(self) -> tuple[float, ...]:
        return tuple([math.floor(level * 1000) / 1000 for level in self._levels])

    def _each(self) -> Iterator[tuple[Band, float]]:
        return zip(self._bands, self._levels, strict=True)

    def _lowest(self) -> int:
        return math.floor(min(self._levels))

    def _tell(self, now: int) -> None:
        self._now = max(self._now, now - self._epoch)
        if self._reserved and self._reserved.ends <= self._now:
            self._reserved = None
        if self._paused is not None and self._paused + SETTLES <= self._now:
            self._paused = None

    def _refill(self, instant: int, leased: int | None = None) -> None:
        elapsed, self._time = instant - self._time, instant
        outstanding = self._table.outstanding if leased is None else leased
        for i, (band, level) in enumerate(self._each()):
            room = band.burst - outstanding - level
            self._levels[i] = level + (max(0, room) if elapsed * band.rate >= room else elapsed * band.rate)
