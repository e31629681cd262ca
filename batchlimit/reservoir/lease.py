"""The tokens that this process has leased of one bucket: until when, and who may spend them."""

from collections.abc import Sized

from batchlimit.base.waiting import LONG_AGO
from batchlimit.bucket.fair_share import ALPHA, LEASABLE
from batchlimit.bucket.messages import Grant
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.tokens import FreeTokens
from batchlimit.reservoir.waiter import Admit, Fetch, Waiter, WholeBurst

_NONE = range(-1, -1)
"""No generation: of the first one, which is 0, it is the end neither."""


class Lease:
    """Tokens are in one of three places: free for any caller (`tokens`), reserved for waiters, or pending.

    Pending tokens were granted for later: they begin at `starts`. All of them end at `tokens.expires`.

    The bucket counts tokens as leased to this instance until a request says that they are spent. `_recorded` is how
    many it counts at the least, whatever is under way: only so many may ever be held or put back here.

    It has 12 public methods: each is one way by which tokens come, go or change their place, and all touch one sum.

    Tokens may also be `borrowed`: granted by this instance to itself while the store is away. Those are not the
    bucket's: it is never told of them, none go back to it, and with its next grant they are gone.
    """

    __slots__ = (
        "_recorded", "_tokens", "borrowed", "counted_as_spent", "generation", "may_count_as_spent", "pending",
        "pledged", "prompt", "reports", "reserved_for_waiters", "served", "starts", "untold", "void_before",
        "whole_burst",
    )  # fmt: skip

    def __init__(self, tokens: FreeTokens, now: float) -> None:
        self._tokens, self.starts = tokens, now
        self.reserved_for_waiters = self.pending = self._recorded = 0
        self.pledged = 0  # tokens given to waiters that are tentative still
        self.prompt = 0  # and to those of them that are prompt
        self.reports = 0  # made to the bucket; tokens spent before one are spent for the bucket too
        self.untold = 0  # tokens that the last report told as held, and that were spent since
        self.generation = 0  # a new one whenever the tokens here are lost, or their owner changes: bucket or fallback
        self.borrowed = False
        self.may_count_as_spent = False  # whether the bucket may count the last grant as spent
        self.counted_as_spent = _NONE  # the generations that it counts so; not all of them were spent
        self.whole_burst: WholeBurst | None = None  # the bucket whose whole burst is leased here, by its last answer
        self.void_before = LONG_AGO  # what was asked for before this is not to be spent
        self.served = 0  # tokens of the bucket's that went to waiters

    @property
    def held(self) -> int:
        """The tokens that are here and not spent, wherever they come from."""
        return self._tokens.available + self.reserved_for_waiters + self.pending

    @property
    def leased(self) -> int:
        """The tokens of the bucket that are here and not spent."""
        return 0 if self.borrowed else self.held

    @property
    def is_counted_as_spent(self) -> bool:
        """Whether the bucket counts what is here as spent, it seems: it may, and did so with what was here before."""
        return self.may_count_as_spent and self.counted_as_spent.stop == self.generation

    def advance(self, now: float) -> None:
        """Take in what has begun, and let go of what has expired."""
        if self.pending and now >= self.starts:
            begun, self.pending = self.pending, 0
            self.reserved_for_waiters += begun
        if now >= self._tokens.expires:
            self.take_all()

    # A signal handler may raise between any two lines here. So tokens leave one place before they enter another, and
    # before a waiter has its verdict: an interrupt loses some, and makes none.

    def reserve_for(self, waiters: Sized) -> None:
        """Reserve all free tokens while somebody waits; else set all reserved tokens free."""
        if not waiters:
            if free := self.reserved_for_waiters:
                self.reserved_for_waiters = 0
                self._tokens.add(free)
        elif free := self._tokens.reclaim():
            self._tokens.add(-free)
            self.reserved_for_waiters += free

    def spend(self, cost: int) -> None:
        """Spend reserved tokens."""
        self.reserved_for_waiters -= cost
        self._tokens.came += cost

    def serve(self, waiter: Waiter) -> Admit:
        """Spend reserved tokens on a waiter: as far as the bucket is concerned, once the waiter is confirmed."""
        admit = Admit(self._tokens.expires, self.generation, self.borrowed)
        self.served += 0 if self.borrowed else waiter.cost  # first: so nobody ever sees more of memory's than there are
        self.spend(waiter.cost)
        waiter.reports = self.reports
        self.pledged += waiter.cost if waiter.tentative else 0
        self.prompt += waiter.cost if waiter.prompt else 0
        waiter.verdict = admit  # with no call in between: a pledge that nobody knows of would last for ever
        return admit

    def forsake(self, waiter: Waiter, admit: Admit) -> None:
        """Uncount the tokens of a waiter that did not spend them."""
        self._tokens.took_late(waiter.cost)
        self.served -= 0 if admit.borrowed else waiter.cost

    def put_back(self, cost: int, now: float, margin: float = 0.0) -> int:
        """Put back spent tokens, as far as they are leased for longer than `margin` (s); return how many."""
        room = cost if self.borrowed else max(0, self._recorded - self.held - self.pledged)
        back = min(cost, room) if now + margin < self._tokens.expires else 0
        self.reserved_for_waiters += back
        return back

    def report(self) -> int:
        """Return how many tokens we report as held; once that arrives, the rest of the lease is spent."""
        self.reports += 1
        self.untold = 0
        self._recorded = 0 if self.borrowed else self.held + self.pledged
        self.whole_burst = None
        return self._recorded

    def begins(self, fetch: Fetch, grant: Grant, now: float) -> float:
        """Return when a grant begins that arrived at `now`.

        The bucket counts `starts_in` from when it heard the ask, so its answer's arrival is late enough. Where this
        instance had the whole burst, the instant of the ask is. What it reports as spent was spent by then, and nobody
        else had a token. The bucket refills nothing before the ask arrives. So the ask's way is not lost to the rate.
        The grant refills from the ask on: the answer to a later copy of the ask would say less. Tokens spent by then
        are refilled from then on, and others may have those.
        """
        whole, begins = fetch.whole_burst, now + grant.starts_in
        if whole is None or whole[:2] != (grant.epoch, grant.version) or now >= self._tokens.expires:
            return begins
        if self.may_count_as_spent and grant.active_instances > 1:
            return begins
        return max(now, min(begins, fetch.sent + max(grant.starts_in, grant.granted / whole.rate)))

    def credit(self, fetch: Fetch, grant: Grant, now: float, begins: float, quota: Quota) -> int:
        """Take in a grant that `begins` then; return how many tokens go back to the bucket, which counts them as spent.

        If it counts less as ours than we told it, all we had is gone.
        """
        unspent = 0
        self._tokens.reclaim()
        if self.borrowed or grant.kept < fetch.ask.held:
            is_spent = self.may_count_as_spent and not self.borrowed and grant.epoch == fetch.ask.epoch
            so_far, generation = self.counted_as_spent, self.generation
            first = so_far.start if so_far.stop == generation else generation
            self.counted_as_spent = range(first, generation + 1) if is_spent else _NONE
            held = self.take_all()
            unspent = held if is_spent and now < self._tokens.expires else 0
            self.generation += 1
            self.borrowed = False
        self.starts = max(self.starts, begins) if self.pending else begins
        if begins > now:
            self.pending += grant.granted
        else:
            self.reserved_for_waiters += grant.granted
        self._tokens.expires = fetch.sent + grant.starts_in + grant.lease
        self._recorded = grant.kept + grant.granted
        self.may_count_as_spent = (
            grant.kept == 0 and grant.granted <= fetch.ask.queued and _is_small(quota, grant.active_instances)
        )
        is_all = 0 < quota.burst <= self._recorded and not (quota.also or fetch.repeated) and grant.granted > 0
        self.whole_burst = WholeBurst(grant.epoch, grant.version, quota.rate) if is_all else None
        if fetch.sent <= self.void_before:
            self.take_all()
        return unspent

    def borrow(self, granted: int, lease: float, now: float) -> int:
        """Take in what this instance grants itself, until the old end at most; return what was left of the lease."""
        tokens = self._tokens
        tokens.reclaim()
        self.pending = self._recorded = tokens.low_watermark = 0
        left, ends = self.leased, now + lease
        tokens.expires = min(tokens.expires, ends) if left else ends
        self.generation += not self.borrowed
        self.starts = now
        self.reserved_for_waiters += granted
        self.borrowed = True
        return left

    def disown(self) -> None:
        """Let go of everything, and of what is under way: nothing of it is ours any more."""
        self.take_all()
        self.generation += self.borrowed
        self._recorded, self.borrowed = 0, False

    def take_all(self) -> int:
        """Let go of everything, unspent; return how much that was."""
        free = self._tokens.reclaim()  # first: what a hit takes in between would be let go of as well
        tokens = free + self.reserved_for_waiters + self.pending
        self._tokens.add(-free)
        self.reserved_for_waiters = self.pending = self._tokens.low_watermark = 0
        return tokens


def _is_small(quota: Quota, instances: int) -> bool:
    """Return whether an instance may spend where it cannot lease; twice as often as by its part, for weights differ."""
    least = min(each.burst for each in quota.also) if quota.also else quota.burst
    return ALPHA * min(least, quota.burst) < 2 * LEASABLE * instances
