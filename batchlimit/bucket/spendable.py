"""What a bucket counts: its levels, and which instances hold what of it.

A bucket of which nobody leases is refilled, compared, and charged, as lua/spend.lua does it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from batchlimit.bucket import fair_share
from batchlimit.bucket.fair_share import ACTIVE, FAR, HEARD, MARGIN, OVER, QUIET, SETTLES, SILENT, SWEEP, Band, Claims
from batchlimit.bucket.messages import Spend, Spent
from batchlimit.quota.quota import Quota

_SECOND = 1_000_000


@dataclass(slots=True)
class InstanceEntry:
    """What a bucket knows of one instance; `held` is outstanding until `expires`. Instants are us since its epoch."""

    last: int
    """When it was last served: from then on it accrues its share."""
    seen: int
    seq: int = -1
    held: int = 0
    expires: int = 0
    granted: int = 0
    starts: int = 0
    weight: int = 0
    """Its part of the whole; without one it has no share, and is no active instance: it only remembers."""
    known: int = 0
    """Until when it remembers a refund."""

    def returnable(self, kept: int, now: int) -> int:
        """Return how many tokens it may bring back unspent if it has `kept` so many."""
        spent = self.granted if self.held < self.granted and now < self.expires else 0
        return self.held - kept + spent

    def is_over(self, now: int) -> bool:
        """Whether its lease is over, and it still has something of it: tokens, or a share though it asked long ago."""
        return self.expires <= now and (self.held > 0 or self.seen + ACTIVE <= now)


class Reserved(NamedTuple):
    """Tokens that only one instance may draw on, until it is served or `ends`."""

    name: str
    tokens: int
    ends: float


class InstanceTable:
    """The instances by name, and the sums over them that the bucket needs at every call: so none of them is a loop.

    It has 10 public methods: all change the sums together with what they are of, or answer by the sums.
    """

    __slots__ = ("active", "instances", "lasts", "outstanding", "swept", "weights")

    def __init__(self) -> None:
        self.instances: dict[str, InstanceEntry] = {}
        self.outstanding = 0  # of all `held`
        self.active = 0  # those that share the bucket
        self.weights = 0  # of all `weight`
        self.lasts = 0  # of all `last`, each times its weight
        self.swept = 0

    def over(self, now: int, own: str, every: int | float) -> list[tuple[str, InstanceEntry]]:
        """Return from whom something is to be taken, in the order in which their leases ended.

        The own instance, and all others `every` so many us, the rarer the more there are: so a call costs O(1) on
        average.
        """
        instances = {own: self.instances[own]} if own in self.instances else {}
        if now - self.swept >= max(every, SWEEP * self.active):
            self.swept = now
            instances = self.instances
        over = [(name, instance) for name, instance in instances.items() if instance.is_over(now)]
        return sorted(over, key=lambda entry: entry[1].expires)

    def enter(self, name: str, now: int) -> InstanceEntry:
        """Make an entry for an instance that has none, without weight."""
        instance = self.instances[name] = InstanceEntry(last=now, seen=now)
        return instance

    def weigh(self, instance: InstanceEntry, weight: int, now: int) -> None:
        """Give an instance another weight; if it had none, its share begins anew."""
        self.weights, self.lasts = self.weights - instance.weight, self.lasts - instance.weight * instance.last
        if instance.weight == 0:
            self.active, instance.last = self.active + 1, now
        if weight == 0:
            self.active -= 1
        instance.weight = weight
        self.weights, self.lasts = self.weights + weight, self.lasts + weight * instance.last

    def overweight(self, instance: InstanceEntry) -> int:
        """Return how much heavier it is than all are on average, times how many there are; below 0: lighter."""
        return instance.weight * self.active - self.weights

    def ease(self, instance: InstanceEntry, now: int) -> None:
        """Have a heavier instance weigh one more than the others do on average, until it asks again."""
        self.weigh(instance, (self.weights - instance.weight) // (self.active - 1) + 1, now)

    def forget(self, name: str, instance: InstanceEntry, now: int) -> None:
        """Take away the share of an instance that holds nothing; strike its entry, unless it remembers a refund."""
        if instance.weight > 0:
            self.weigh(instance, 0, now)
        if instance.known <= now:
            del self.instances[name]

    def settle(self, instance: InstanceEntry, kept: int) -> None:
        """Take note that of what the instance held it has `kept`."""
        self.outstanding -= instance.held - kept
        instance.held = kept

    def lend(self, instance: InstanceEntry, tokens: int, starts: int, expires: int) -> None:
        self.outstanding += tokens
        instance.held, instance.granted, instance.starts = instance.held + tokens, tokens, starts
        instance.expires = max(instance.expires, expires)

    def claims(self, instance: InstanceEntry) -> Claims:
        """Return what the instance's fair share depends on."""
        return Claims(instance.weight, self.weights, instance.last, self.lasts)

    def serve(self, instance: InstanceEntry, at: int) -> None:
        """Begin the instance's share anew."""
        self.lasts, instance.last = self.lasts + instance.weight * (at - instance.last), at


class SpendableBucket:
    """The levels of one quota's bandwidths; `now` is an instant in us, never a clock."""

    __slots__ = (
        "_bands", "_epoch", "_heard", "_is_small", "_known", "_levels", "_now", "_paused", "_quota", "_rank",
        "_refused", "_reserved", "_shadow", "_since", "_table", "_time", "_used", "_version",
    )  # fmt: skip

    def __init__(self, quota: Quota, now: int, fill: float = 1.0) -> None:
        self._quota, self._version, self._epoch, self._now, self._time = quota, 1, now, 0, 0
        self._known = 0  # until when a refund is remembered
        self._since: int | None = None  # when the quota was set that the bucket obeys; None: not yet asked
        self._rank = 0, 0  # of that quota: rules, and revision
        self._heard: int | None = None  # when an instance of this rank asked for it; None: all agree, at rank 0
        self._bands = fair_share.bands_of(quota)
        self._levels: list[float] = [math.floor(band.burst * fill) for band in self._bands]
        self._table = InstanceTable()
        self._reserved: Reserved | None = None
        self._is_small = False  # whether it was spent of since instances leased of it, or anything else was done
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
        told = Spent(wait <= 0, fair_share.rounded(wait) / _SECOND if wait > 0 else 0.0, self._epoch, self._told())
        self._levels, self._now, self._time = before
        return None if is_young and wait > 0 else told

    def charge(self, spend: Spend, now: int) -> Spent:
        self._now = max(self._now, now - self._epoch)
        self._flow()
        self._levels = [level - spend.cost for level in self._levels]
        self._used += spend.cost
        told = Spent(True, 0.0, self._epoch, self._told())
        since = self._now - round(spend.age * _SECOND) + (FAR if spend.rules else 0)
        self._since = max(-FAR if self._since is None else self._since, since) // _SECOND * _SECOND
        rank = spend.rules, spend.revision
        if any(rank) and (self._heard is None or self._now - self._heard >= HEARD):
            self._rank, self._heard = rank, self._now
        if self._known <= self._now:
            self._shrink()
        return told

    def _shrink(self) -> None:
        """Forget all instances: nobody leases of it, and no refund is remembered."""
        self._table, self._is_small, self._version, self._known, self._reserved = InstanceTable(), True, 1, 0, None
        if len(self._bands) == 1:  # a whole level, as of when it was just that
            left, self._levels = self._levels[0], [math.floor(self._levels[0])]
            self._time = self._now - math.floor(min((left - self._levels[0]) / self._bands[0].rate, self._now))
        self._now = self._table.swept = self._time

    def expires_in(self) -> int:
        """Return after how many us without a call the bucket is as good as a new one."""
        to_full = max((band.burst - level) / band.rate for band, level in self._each())
        return max(math.ceil(to_full + fair_share.lease_of(self._bands)) + MARGIN, self._known - self._now)

    @property
    def _is_leased(self) -> bool:
        return self._table.active > 0 or self._reserved is not None

    @property
    def _left(self) -> int:
        """How long (us) the bucket is paused yet."""
        return 0 if self._paused is None else max(0, self._paused - self._now)

    def _is_plain(self, now: int) -> bool:
        """Whether nobody leases of it, or nobody was heard for so long that all leases are over.

        Where a refund is remembered `take` looks at the instances, once in SILENT.
        """
        if self._is_small:
            return True
        if self._paused is not None or (self._heard is not None and self._rank == (0, 0)):
            return False
        if self._known > now:
            return not self._is_leased and now - self._table.swept < SILENT
        return now - self._time >= QUIET or not self._is_leased

    def _flow(self) -> None:
        if self._is_leased:
            self._refill(self._time + OVER)
        self._refill(self._now, leased=0)

    def _told(self) -> tuple[float, ...]:
        return tuple([math.floor(level * 1000) / 1000 for level in self._levels])

    def _each(self) -> Iterator[tuple[Band, float]]:
        return zip(self._bands, self._levels, strict=True)

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
