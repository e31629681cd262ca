"""Buckets of this process alone: what stands in for one key's while the store is away, and a quota on trial."""

import math

from batchlimit.quota.failure_policy import CLOSED, UNCOUNTED, FailurePolicy
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import BucketView
from batchlimit.reservoir.lease import Lease
from batchlimit.reservoir.waiter import Fail

LEASE = 0.5
"""Seconds that such a grant lasts: so soon does a key find out that the store is back."""

_DUST = 1e-9
"""Tokens that rounding may lose: 4.999999999 are five."""
_TICK = 1e-6
"""Seconds on top of a wait, so that what was waited for is there at its end, and nobody asks a moment too early."""
_ABSOLVED = 60.0
"""For so long (s) after the return of the store a refund may be of what was admitted without it."""


class LocalBucket:
    """A token bucket of this process alone, with rate / instances and burst / instances of a quota.

    It begins with its share of `known`, the level that the bucket in the store last had: all instances together begin
    with that level, and not with a burst. Of a quota with several bandwidths only the lowest level is known, so all
    bandwidths begin with it.

    A cost above the share of the burst is admitted when the share is full, and leaves the level below 0. Otherwise it
    would never be admitted. The rate is kept.
    """

    __slots__ = ("_at", "_bands", "_levels")

    def __init__(self, quota: Quota, instances: int, known: float, now: float) -> None:
        self._bands = [(each.rate / instances, each.burst / instances) for each in quota.bandwidths]
        self._levels = [min(burst, known / instances) for _, burst in self._bands]
        self._at = now

    def grant(self, need: int, want: int, now: float) -> tuple[int, float]:
        """Return (tokens, seconds): how many may be spent, or 0 and when what the first caller needs may fit."""
        self._levels, self._at = self._refilled(now), max(now, self._at)
        if (wait := self._wait(need)) > 0.0:
            return 0, wait
        tokens = max(need, min(want, math.floor(min(self._levels) + _DUST)))
        self._levels = [level - tokens for level in self._levels]
        return tokens, 0.0

    def _wait(self, need: int) -> float:
        """Return when (s) all bandwidths have `need`, or are full; 0.0: now."""
        pairs = zip(self._bands, self._levels, strict=True)
        missing = [(min(need, burst) - level, rate) for (rate, burst), level in pairs]
        return max(tokens / rate + _TICK if tokens > _DUST else 0.0 for tokens, rate in missing)

    def fits_in(self, tokens: int, now: float) -> float:
        """Return in how many seconds so many are there, or as many as there can be."""
        return max(0.0, self._wait(tokens) + self._at - now)

    def put_back(self, tokens: int, now: float) -> None:
        """Take back what was granted, or refunded, and not used, as far as there is room."""
        pairs = zip(self._bands, self._refilled(now), strict=True)
        self._levels, self._at = [min(burst, level + tokens) for (_, burst), level in pairs], max(now, self._at)

    def level(self, now: float) -> int:
        """Return the whole tokens of the lowest bandwidth; changes nothing, so that it may be read without a lock."""
        return math.floor(min(self._refilled(now)) + _DUST)

    def full_at(self) -> float:
        """Return when all bandwidths are full, if nothing is granted."""
        pairs = zip(self._bands, self._levels, strict=True)
        return self._at + max((burst - level) / rate for (rate, burst), level in pairs)

    def _refilled(self, now: float) -> list[float]:
        elapsed = max(0.0, now - self._at)
        pairs = zip(self._bands, self._levels, strict=True)
        return [min(burst, level + rate * elapsed) for (rate, burst), level in pairs]


class OpenBucket(LocalBucket):
    """Admits everything: it is always full."""

    __slots__ = ()

    def __init__(self, quota: Quota) -> None:
        super().__init__(quota, 1, math.inf, -math.inf)

    def grant(self, need: int, want: int, now: float) -> tuple[int, float]:
        """Return (tokens, 0.0 s): what is wanted, and a burst on top, so that it lasts."""
        return want + self.level(now), 0.0

    def full_at(self) -> float:
        """Return the distant past: to forget this one, and to begin anew, creates no token."""
        return -math.inf

    def _refilled(self, now: float) -> list[float]:
        return [burst for _, burst in self._bands]


class Fallback:
    """Lends in a bucket's place, as a FailurePolicy says or in mode "open", and knows what of that may be refunded."""

    __slots__ = ("_forgiven_at", "_left", "_policy", "admitted", "bucket", "opened", "unrefunded")

    def __init__(self, policy: FailurePolicy) -> None:
        self.bucket: LocalBucket | None = None
        self.admitted = 0  # tokens, without the store
        self.opened = 0  # and those that an operator had admitted without it
        self._policy = policy
        self.unrefunded = 0  # those of them that may be refunded still
        self._forgiven_at = math.inf
        self._left = 0  # of what is borrowed, how many tokens were left of a lease

    def follow(self, policy: FailurePolicy) -> None:
        """Go by another policy from now on; what is borrowed by the old one ends within half a second."""
        if policy != self._policy:
            self._policy, self.bucket = policy, None

    @property
    def fails_closed(self) -> bool:
        """Whether callers get an error while the store is away."""
        return self._policy == CLOSED

    def failure(self, error: Exception) -> Fail:
        """Return what to tell callers who need the store, which failed, where nothing stands in for it."""
        return Fail(error, UNCOUNTED if self._policy.kind == "local" else "")

    def bucket_now(self, quota: Quota, view: BucketView, now: float) -> LocalBucket | None:
        """Return what answers instead of the bucket, by what it was when last seen; None: nothing does."""
        if self.bucket is None and self._policy.kind == "open":
            self.bucket = OpenBucket(quota)
        elif self.bucket is None and self._policy.kind == "local":
            told, known = view.last_seen(quota, now)
            if instances := max(told, self._policy.instances or 0):
                self.bucket = LocalBucket(quota, instances, known, now)
        return self.bucket

    def count(self, spent: int, *, is_open: bool) -> None:
        """Take note of tokens that were spent without the store, because it is away or because an operator said so."""
        self.admitted, self.opened = self.counted(spent, is_open=is_open)
        self.unrefunded += spent

    def counted(self, spent: int, *, is_open: bool) -> tuple[int, int]:
        """Return `admitted` and `opened` once such tokens are counted."""
        return (self.admitted, self.opened + spent) if is_open else (self.admitted + spent, self.opened)

    def lend(self, bucket: LocalBucket, need: int, want: int, lease: Lease, now: float) -> float:
        """Lend as many tokens as are wanted, or what the first caller needs; return in how many seconds (0.0: now)."""
        granted, wait = bucket.grant(need, want, now)
        self._left = lease.borrow(granted, LEASE, now)
        return wait

    def pay_back(self, lease: Lease, now: float) -> None:
        """Nobody used what is left of what was borrowed: it is for who needs it later."""
        if lease.borrowed and self.bucket is not None:
            self.bucket.put_back(max(0, lease.take_all() - self._left), now)

    def end(self, lease: Lease, now: float) -> None:
        """Lend no longer: the store is back, or the mode "open" has ended."""
        if self.bucket is not None and self.bucket.full_at() <= now:
            self.bucket = None  # else it goes on where it was: a new one at each outage would grant the same anew
        if lease.borrowed:
            self.pay_back(lease, now)
            self._forgiven_at = now + _ABSOLVED

    def absorb(self, tokens: int, lease: Lease, now: float) -> int:
        """Return how many of the refunded tokens were admitted without the bucket: those come first, for a minute."""
        if now >= self._forgiven_at:
            self.unrefunded, self._forgiven_at = 0, math.inf
        absorbed = min(tokens, self.unrefunded)
        self.unrefunded -= absorbed
        if lease.borrowed and self.bucket is not None:
            self.bucket.put_back(absorbed, now)
        return absorbed


NO_FALLBACK = Fallback(CLOSED)
"""Of all keys that fail closed: one for all of them, since nothing can change in it."""


class Trial:
    """Counts as if a bucket of this quota had decided, in this process: each instance has its share of it.

    It does not ask the bucket in the store, and counts no single hit. It spreads what was spent since the last count
    evenly over that time, and over the instances. So it is an estimate.
    """

    __slots__ = ("_at", "_levels", "quota", "refused")

    def __init__(self, quota: Quota, now: float) -> None:
        self.quota = quota
        self.refused = 0.0  # tokens that it would have refused
        self._at = now
        self._levels: list[float] | None = None  # of each bandwidth, of this instance's share; None: full

    def count(self, spent: int, instances: int, now: float) -> int:
        """Count `spent` tokens that were admitted since; return how many whole tokens more it has refused now."""
        elapsed, self._at = max(0.0, now - self._at), max(now, self._at)
        shares = [(each.rate / instances, each.burst / instances) for each in self.quota.bandwidths]
        levels = self._levels or [burst for _, burst in shares]
        rooms = [min(level, burst) + rate * elapsed for level, (rate, burst) in zip(levels, shares, strict=True)]
        admitted = max(0.0, min(float(spent), *rooms))
        self._levels = [min(burst, room - admitted) for room, (_, burst) in zip(rooms, shares, strict=True)]
        before, self.refused = int(self.refused), self.refused + spent - admitted
        return int(self.refused) - before

    def full_at(self, instances: int) -> float:
        """Return when (s) this instance's share is full, if nothing is spent: from then on nothing need be known."""
        if self._levels is None or self.quota.denies_all:
            return self._at
        missing = [
            (each.burst / instances - level) / (each.rate / instances)
            for level, each in zip(self._levels, self.quota.bandwidths, strict=True)
        ]
        return self._at + max(0.0, *missing)
