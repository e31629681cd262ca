"""What stands in for one key's bucket while the store is away, and what becomes of the tokens that it admitted."""

import math

from batchlimit.quota.failure_policy import CLOSED, UNCOUNTED, FailurePolicy
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import BucketView
from batchlimit.reservoir.fallback.local_bucket import LEASE, FallbackBucket, Wish, fallback
from batchlimit.reservoir.lease import Lease
from batchlimit.reservoir.waiter import Fail

_ABSOLVED = 60.0
"""For so long (s) after the return of the store a refund may be of what was admitted without it."""


class Fallback:
    """The Fallback that a FailurePolicy asks for, from the first failure on, and what is owed to it."""

    __slots__ = ("_forgiven_at", "_left", "_policy", "admitted", "bucket", "opened", "unrefunded")

    def __init__(self, policy: FailurePolicy) -> None:
        self.bucket: FallbackBucket | None = None
        self.admitted = 0  # tokens, without the store
        self.opened = 0  # and those that an operator had admitted without it
        self._policy = policy
        self.unrefunded = 0  # those of them that may be refunded still
        self._forgiven_at = math.inf
        self._left = 0  # of what is borrowed, how many tokens were left of a lease

    def __repr__(self) -> str:
        return f"<Fallback {self._policy}: {self.bucket}, {self.admitted} admitted>"

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

    def bucket_now(self, quota: Quota, view: BucketView, now: float) -> FallbackBucket | None:
        """Return what answers instead of the bucket, by what it was when last seen; None: nothing does."""
        if self.bucket is None:
            self.bucket = fallback(self._policy, quota, *view.last_seen(quota, now), now)
        return self.bucket

    def count(self, spent: int, *, is_open: bool) -> None:
        """Take note of tokens that were spent without the store, because it is away or because an operator said so."""
        self.admitted, self.opened = self.counted(spent, is_open=is_open)
        self.unrefunded += spent

    def counted(self, spent: int, *, is_open: bool) -> tuple[int, int]:
        """Return `admitted` and `opened` once such tokens are counted."""
        return (self.admitted, self.opened + spent) if is_open else (self.admitted + spent, self.opened)

    def lend(self, bucket: FallbackBucket, wish: Wish, lease: Lease, now: float) -> float:
        """Lend what is wished for, if it is there; return in how many seconds it is (0.0: now)."""
        granted, wait = bucket.grant(wish, now)
        self._left = lease.borrow(granted, LEASE, now)
        return wait

    def pay_back(self, lease: Lease, now: float) -> None:
        """Nobody used what is left of what was borrowed: it is for who needs it later."""
        if lease.borrowed and self.bucket is not None:
            self.bucket.put_back(max(0, lease.take_all() - self._left), now)

    def end(self, lease: Lease, now: float) -> None:
        """The store is back."""
        if self.bucket is not None and self.bucket.full_at() <= now:
            self.bucket = None  # else it goes on where it was: a new one at each outage would grant the same anew
        if lease.borrowed:
            self.pay_back(lease, now)
            self._forgiven_at = now + _ABSOLVED

    def absorb(self, tokens: int, lease: Lease, now: float) -> int:
        """Return how many of these refunded tokens were never the bucket's, as far as is known: it must not get them.

        Those that were admitted without the store come first, for a minute after its return.
        """
        if now >= self._forgiven_at:
            self.unrefunded, self._forgiven_at = 0, math.inf
        absorbed = min(tokens, self.unrefunded)
        self.unrefunded -= absorbed
        if lease.borrowed and self.bucket is not None:
            self.bucket.put_back(absorbed, now)
        return absorbed


NO_FALLBACK = Fallback(CLOSED)
"""Of all keys that fail closed: one for all of them, since nothing can change in it."""
