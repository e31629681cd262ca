"""What the buckets last told this instance: of one key, and how many instances share them."""

import math
import struct
from typing import Literal, NamedTuple, get_args

from batchlimit.base.waiting import LONG_AGO
from batchlimit.bucket.fair_share import ALPHA, MARGIN, bands_of, quickest
from batchlimit.bucket.messages import Grant
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.waiter import Fetch

Fill = Literal["full", "share", "empty"]
"""How full a bucket begins anew whose state was lost: the whole burst, one instance's share of it, or nothing."""
FILLS = get_args(Fill)
_KEPT = MARGIN / 1e6
"""How long (s) a bucket is kept at least."""

_ROUNDING = 1.5e-6
"""Seconds: a bucket counts whole microseconds."""
_OWED = 1.5
"""Seconds of refill. What is granted for later is refilled within one second: a bucket that owes more is paused."""
_LATEST = 1.0
"""Seconds by which a caller that wakes late lengthens an answer, at the most: to be stopped for minutes is no rule."""
_WINDOW = 60.0
"""Seconds. Within this time a key that few instances ask for must not hide the others; instances that left must go."""
_FORM = struct.Struct("9d")
"""A double holds each field exactly: the largest, an epoch (us) and a level, stay below 2^53 for centuries."""


class KeySnapshot(NamedTuple):
    """What a retired reservoir leaves for the next one of its key. Instants are of the instance's clock."""

    used: float
    """When a caller last asked for a token."""
    demand: float
    """Tokens per second that callers asked for, at `counted_at`."""
    counted_at: float
    last_want: float
    epoch: float
    level: float
    active_instances: float
    round_trip: float
    heard: float
    """When the bucket last answered; -inf: never."""

    def pack(self) -> bytes:
        """Return the snapshot in 105 bytes that the garbage collector never visits; a tuple of floats has 336."""
        return _FORM.pack(*self)

    @classmethod
    def unpack(cls, packed: bytes) -> "KeySnapshot":
        """Return the snapshot that was packed."""
        return tuple.__new__(cls, _FORM.unpack(packed))  # in a third of the time


pack = _FORM.pack
"""Packs the fields of a KeySnapshot without making one."""


class InstanceCount:
    """The most instances that were active at any one key within the last one or two minutes.

    One key knows only the instances that asked for it within a second. If each of four instances that ask rarely
    divided by that number while the store is away, each would admit the whole limit.
    """

    __slots__ = ("_before", "_now", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._before = self._now = 0

    @property
    def instances(self) -> int:
        """The number; 0: the store never told one."""
        return max(self._before, self._now)

    def learn(self, instances: int, now: float) -> None:
        """Take in what one key's bucket tells. Racing threads may lose one report, never the order of magnitude."""
        if now - self._since >= _WINDOW:
            self._before = self._now if now - self._since < 2 * _WINDOW else 0
            self._since, self._now = now, 0
        self._now = max(self._now, instances)


class BucketView:
    """The bucket's epoch and level, how many instances share it, and how long an answer takes (s).

    It has 14 public methods: all but four are questions to what one answer told.
    """

    __slots__ = (
        "_ends", "_epoch", "_fill", "_heard", "_instance_count", "_leased", "_levels", "_told_instances",
        "active_instances", "binding", "level", "losses", "paused_until", "round_trip",
    )  # fmt: skip

    def __init__(self, fill: Fill, instance_count: InstanceCount) -> None:
        self.level = self._epoch = 0
        self.losses = 0  # how often the bucket's state was lost
        self._instance_count = instance_count
        self._heard = LONG_AGO
        self._levels: tuple[float, ...] = ()  # of each bandwidth, if the bucket told of them
        self.binding: int | None = None  # see `binding_of`
        self._leased = 0  # tokens that the bucket counted as leased to this instance
        self._ends = LONG_AGO  # when it counts them no more, at the latest
        self.paused_until = LONG_AGO  # as far as it told
        self.active_instances = 1
        self._told_instances = 0  # 0: nobody leases of the bucket, as far as it told
        self.round_trip = 0.0
        self._fill = fill

    def known(self) -> tuple[float, float, float, float, float]:
        """Return what a KeySnapshot keeps of this, in its order."""
        return self._epoch, self.level, self._told_instances, self.round_trip, self._heard

    def recall(self, snapshot: KeySnapshot) -> None:
        """Begin with what a snapshot kept."""
        self._epoch, self.level = int(snapshot.epoch), int(snapshot.level)
        self.active_instances = max(1, int(snapshot.active_instances))
        self._told_instances = int(snapshot.active_instances)
        self.round_trip, self._heard = snapshot.round_trip, snapshot.heard

    @property
    def was_seen(self) -> bool:
        """Whether the bucket ever answered."""
        return self._heard > LONG_AGO

    def is_rich(self, burst: int) -> bool:
        """Whether half of the bucket was left, or more, as far as its level tells: the lowest of all bandwidths'."""
        return self.level >= ALPHA * burst

    def is_low(self, burst: int) -> bool:
        """Whether less than a fifth of the bucket was left when it last answered."""
        return self.level * 5 < burst and self.was_seen

    def expected(self, quota: Quota, now: float) -> tuple[int, float, float]:
        """Return the epoch of the bucket (see `kept_epoch`), how full it begins if it was lost, and its round trip."""
        epoch = kept_epoch(self._epoch, self.level, self._heard, quota, now)
        return epoch, first_fill(self._fill, self.active_instances), self.round_trip

    def fits_in(self, tokens: int, quota: Quota, now: float) -> float:
        """Return after how many seconds the bucket has so many tokens for this process, as far as it told."""
        return max(0.0, self._fits_at(tokens, quota) + _ROUNDING - now)

    def has(self, tokens: int, quota: Quota, now: float) -> bool:
        """Whether the bucket has so many tokens here by now, as far as it told: a little sooner than `fits_in`."""
        return self._fits_at(tokens, quota) <= now

    def _fits_at(self, tokens: int, quota: Quota) -> float:
        """Return when all bandwidths have so many.

        Leased tokens count against the burst until they are reported, or until the lease ends: until then the bucket
        refills no further. A caller that comes back reports, but nobody knows that it will come.
        """
        if quota.denies_all:
            return math.inf
        fits_at = -math.inf
        for level, each in zip(self._levels or [self.level] * len(quota.bandwidths), quota.bandwidths, strict=False):
            room = each.burst - self._leased
            at = self._heard + (tokens - level) / each.rate
            fits_at = max(fits_at, at if tokens <= room else max(at, self._ends + (tokens - room) / each.rate))
        return fits_at

    def levels(self, quota: Quota, held: int, now: float) -> list[float]:
        """Return the tokens of each bandwidth by now, as far as the bucket told, and those that are held here."""
        told = zip(self._levels, quota.bandwidths, strict=False)
        return [min(at + (now - self._heard) * each.rate, each.burst - held) + held for at, each in told]

    def flows_since(self, held: int, quota: Quota) -> float:
        """Return when, at the fastest rate, the refill of all tokens would have begun that are there."""
        there = held + self.level + 1  # the level is of whole tokens: most of another one may have been there
        return self._heard - there / fastest if (fastest := fastest_rate(quota)) else -math.inf

    def last_seen(self, quota: Quota, now: float) -> tuple[int, float]:
        """Return how many instances share the quota (0: never told), and how much must be in the bucket by now.

        A bucket that was never seen is full, as far as anyone knows.
        """
        flowed = slowest_rate(quota) * (now - self._heard)
        return self._instance_count.instances, min(quota.largest_cost, self.level + flowed)

    def learn(self, fetch: Fetch, grant: Grant, now: float) -> None:
        """Take in an answer that arrived at `now`; round trips are smoothed over about five."""
        quota, trip = grant.quota or fetch.quota, now - fetch.sent
        self.losses += 0 < fetch.ask.epoch != grant.epoch
        self._instance_count.learn(grant.active_instances, now)
        self._epoch, self.level, self._heard = grant.epoch, grant.level, now
        levels, paused_until = grant.levels, LONG_AGO
        if grant.retry_after:  # by then the need fits: of a level only thousandths are told, at 100/day 0.9 s each
            pairs, need = zip(levels, quota.bandwidths, strict=False), fetch.ask.need
            levels = tuple([max(level, need - grant.retry_after * each.rate) for level, each in pairs])
        if grant.level < 0:
            told = zip(levels or [grant.level] * len(quota.bandwidths), quota.bandwidths, strict=False)
            owed_for = max(-level / each.rate for level, each in told)
            paused_until = now + owed_for if owed_for > _OWED else LONG_AGO
        self._levels, self.paused_until = levels, paused_until
        self._leased = grant.kept + grant.granted
        self.binding = binding_of(self._levels, quota) if quota.also else None
        self._ends = now + grant.starts_in + grant.lease
        self._told_instances = grant.active_instances
        self.active_instances = max(1, grant.active_instances)
        self.round_trip = self.round_trip + (trip - self.round_trip) * 0.2 if self.round_trip else trip

    def pause(self, seconds: float, quota: Quota, now: float) -> None:
        """Take note that the bucket is paused for so long."""
        levels, bands = list(self._levels or [self.level] * len(quota.bandwidths)), bands_of(quota)
        gate = quickest(bands)
        levels[gate] = min(levels[gate], -seconds * quota.bandwidths[gate].rate)
        self._levels, self.level, self._leased = tuple(levels), math.floor(min(levels)), 0
        self._heard, self.paused_until = now, now + seconds

    def resume(self) -> None:
        """Take note that the bucket is paused no more; what is in it nobody told."""
        self._levels, self.level, self.paused_until = (), 0, LONG_AGO

    def woke_late(self, seconds: float) -> None:
        """Take note that a caller woke so long after its lease: the next one lasts longer, for as long as that counts.

        An answer is of no use before its caller is awake. Where an event loop is so busy that it wakes callers after
        their lease, they queue again and make it busier: of 100,000 waiters 90,000 were refused.
        """
        self.round_trip = max(self.round_trip, min(seconds, _LATEST))


def kept_epoch(epoch: int, level: float, heard: float, quota: Quota, now: float) -> int:
    """Return the epoch of the bucket that must be there still; 0 when it may have filled up and been forgotten.

    By that the bucket tells its loss from its end. It is kept until it would be full, and a while longer.
    """
    if quota.also:
        to_full = min((each.burst - level) / each.rate for each in quota.bandwidths)
    else:  # the usual quota, at every miss: an iterator takes 0.3 us
        to_full = (quota.burst - level) / quota.rate
    return epoch if now - heard < to_full + _KEPT else 0


def first_fill(fill: Fill, instances: int) -> float:
    """Return the share of the burst at which a bucket begins anew, of which so many instances lease."""
    return 1.0 if fill == "full" else 1.0 / max(1, instances) if fill == "share" else 0.0


def binding_of(levels: tuple[float, ...], quota: Quota) -> int | None:
    """Return which bandwidth has the next token last, or else the fewest tokens; None: there is one, or nobody told."""
    if len(levels) < 2 or quota.denies_all:
        return None
    pairs = zip(levels, quota.bandwidths, strict=False)
    each = [(max(0.0, (1 - level) / band.rate), -level, -band.rate) for level, band in pairs]
    return each.index(max(each))


def fastest_rate(quota: Quota) -> float:
    """The rate of all bandwidths: the level does not say which of them it is of."""
    return max(each.rate for each in quota.bandwidths)


def slowest_rate(quota: Quota) -> float:
    """Tokens per second of the slowest bandwidth."""
    return min(each.rate for each in quota.bandwidths)
