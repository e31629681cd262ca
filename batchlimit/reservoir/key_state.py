"""What the parts of one key's reservoir share: its quota, its tokens, its queue, and what is known of its bucket."""

import math
from operator import length_hint

from batchlimit.base.histogram import Durations
from batchlimit.base.waiting import LONG_AGO
from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.failure_policy import CLOSED, FailurePolicy
from batchlimit.quota.grammar import LARGEST_BURST
from batchlimit.quota.overrides.code import Rank
from batchlimit.quota.overrides.override import Mode
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import BucketView, Fill, InstanceCount
from batchlimit.reservoir.denial_cache import NO_DENIALS
from batchlimit.reservoir.fallback import NO_FALLBACK, Fallback, Trial
from batchlimit.reservoir.lease import Lease
from batchlimit.reservoir.overdraft import NO_OVERDRAFT
from batchlimit.reservoir.sizing import Demand
from batchlimit.reservoir.statistics import Figures
from batchlimit.reservoir.tokens import FreeTokens
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import Admit, Fetch, Waiter

_SMALL = 16
"""Where the burst is this many times as large, tokens that are about to be spent are no part of it that matters."""
_UNHEARD = Durations()
"""Of reservoirs outside of a keyspace: nobody reads it."""


class KeyState:
    """Each part of a Reservoir is given this object; all but reading it requires the API's lock."""

    __slots__ = (
        "asked", "calls", "code", "demand", "denials", "denies_all", "edition", "failing_until", "fallback",
        "in_flight", "is_outdated", "is_retired", "is_untouched", "key", "largest_cost", "lease", "mode", "overdraft",
        "own", "queue", "quota", "rank", "refused_by_store", "shadow_refused", "spent", "timed_out", "tokens",
        "told_priority", "trial", "used", "view", "waits", "weight",
    )  # fmt: skip

    def __init__(
        self, quota: Quota, policy: FailurePolicy, fill: Fill, count: InstanceCount, now: float, key: str, rank: Rank
    ) -> None:
        """`quota` is the one of the code, of this rank; `key` is as `stored` returns it."""
        self.tokens, self.queue, self.overdraft = FreeTokens(now), WaitQueue(), NO_OVERDRAFT
        self.lease = Lease(self.tokens, now)
        self.denials, self.demand = NO_DENIALS, Demand(now)
        self.view, self.fallback = BucketView(fill, count), NO_FALLBACK if policy == CLOSED else Fallback(policy)
        self.in_flight: Fetch | GiveBack | None = None  # sent to the store, or about to be, and not reported on
        self.is_retired = False  # another reservoir stands for the key
        self.failing_until = LONG_AGO  # the circuit is open: until then nothing that needs the store is asked
        self.asked = self.spent = 0  # tokens asked for, and spent, up to the last count
        self.told_priority = 1  # the highest that the last ask spoke for
        self.waits = _UNHEARD  # how long callers wait
        self.calls = 0  # requests sent to the store
        self.refused_by_store = self.timed_out = 0  # tokens refused by an answer at once, and to those who waited
        self.used = now  # when somebody last wanted a token
        self.is_untouched = True  # nothing was spent since the last grant
        self.key, self.code, self.rank = key, quota, rank
        self.own, self.edition = quota, 0  # what we ask with, by the overrides known then; the bucket obeys `quota`
        self.mode: Mode = "enforce"  # whether what is decided holds
        self.weight: int | None = None  # of the instance at this key; None: as of the limiter
        self.trial: Trial | None = None  # another quota, of which it is counted what it would refuse
        self.shadow_refused = 0  # tokens that were admitted though they were to be refused, and those of trials
        self.is_outdated = False  # the tokens here were leased with another one
        self.set_quota(quota)

    def __repr__(self) -> str:
        held = f"{self.lease.held} tokens until {self.tokens.expires:.3f} ({self.lease.pending} pending)"
        return f"<KeyState {self.quota}: {held}, {len(self.queue)} in the queue, {self.denials}>"

    @property
    def first_cost(self) -> int:
        """The tokens that must be here before anybody is served: 1 for a debt, 0 for an empty queue."""
        first = self.queue.first
        return 0 if first is None else self.cost_of(first)

    def cost_of(self, first: Waiter) -> int:
        """Return the same where `first` is first in the queue."""
        return 1 if first is self.overdraft.waiter else first.cost

    def is_short(self, now: float) -> bool:
        """Whether anything speaks against an ask: a grant begins later, the bucket was short, or the store is away."""
        return self.lease.pending > 0 or now < self.denials.dry_until or now < self.failing_until

    @property
    def is_held_up(self) -> bool:
        """Whether requests wait until prompt waiters have confirmed, within this turn of their event loop.

        A request sent before would report tokens as held that are about to be spent. The bucket would keep room for
        them: at a burst of 1 that left half of the rate unused.
        """
        return self.lease.prompt * _SMALL > self.largest_cost

    @property
    def told_too_much(self) -> bool:
        """Whether the bucket keeps room for tokens that it was told are held, and that were spent since.

        Who wants several keys holds the tokens of one while requests for others are sent. What the bucket answered then
        is no reason to wait: it refills from the next request on. At a burst of 1 a third of the rate was unused.
        """
        return self.lease.untold * _SMALL > self.largest_cost and not self.denies_all

    @property
    def most(self) -> int:
        """The largest cost that fits by the code, or now: to ask for more is the caller's mistake."""
        code = self.code
        if code is self.quota:  # as at nearly every miss
            return self.largest_cost
        return max(self.largest_cost, LARGEST_BURST if code.denies_all else code.largest_cost)

    @property
    def to_ask_with(self) -> Quota | None:
        """The quota by which a bucket may begin: the own one, or that of the code; None: nothing is admitted."""
        return next((each for each in (self.own, self.code) if not each.denies_all), None)

    @property
    def pending_from(self) -> float:
        """When tokens that were granted for later begin, if the first waiter needs no more; else -inf."""
        return self.lease.starts if self.lease.pending and self.lease.held >= self.first_cost else LONG_AGO

    def set_quota(self, quota: Quota) -> None:
        """Go by another quota from now on."""
        self.quota = quota
        self.fallback.bucket = None
        self.denies_all = quota.denies_all
        self.largest_cost = LARGEST_BURST if self.denies_all else quota.largest_cost

    def count(self, now: float) -> None:
        """Count what was spent and asked for since the last count: a hit counts nothing, a waiter when it joins."""
        total = self.tokens.came - self.tokens.available
        spent, self.spent = total - self.spent, total
        if self.lease.borrowed:
            self.fallback.count(spent, is_open=self.mode == "open")
        if self.trial is not None:
            self.shadow_refused += self.trial.count(spent, self.view.active_instances, now)
        total += self.tokens.refused + self.queue.cost
        asked, self.asked = total - self.asked, total
        self.demand.observe(asked, now)
        if asked or spent:
            self.used = now
        self.is_untouched = self.is_untouched and not spent

    def pass_in_shadow(self, waiter: Waiter) -> Admit | None:
        """Admit a waiter that was to be refused, if the key is in shadow mode; its tokens are not the bucket's."""
        if self.mode != "shadow":
            return None
        waiter.tentative = waiter.prompt = False  # nothing of it is to be confirmed
        self.count_in_shadow(waiter.cost)
        return Admit(math.inf, is_shadow=True)

    def count_in_shadow(self, cost: int) -> None:
        """Count tokens that are admitted though they were to be refused."""
        self.tokens.came += cost
        self.spent += cost
        self.shadow_refused += cost
        self.fallback.unrefunded += cost

    def figures(self) -> Figures:
        """Return what happened and what is here, as fast as can be: it is read of all keys at once.

        (admitted, refused, calls, fallback, losses, opened), which happened; (held, waiting, owed), which are here now;
        (from store, refused by store, timed out, refused in shadow, is low), of its policy.
        """
        tokens, lease, queue, view = self.tokens, self.lease, self.queue, self.view
        here = tokens.free + length_hint(tokens.lock_free)
        spent, owed = tokens.came - here, 0
        unbacked, opened = self.fallback.admitted, self.fallback.opened
        if lease.borrowed:
            unbacked, opened = self.fallback.counted(spent - self.spent, is_open=self.mode == "open")
        held, waiting = here + lease.reserved_for_waiters + lease.pending, len(queue) if queue.cost else 0
        if self.overdraft is not NO_OVERDRAFT:
            owed = self.overdraft.total
            waiting -= self.overdraft.waiter in queue
        done = (spent, tokens.refused, self.calls, unbacked, view.losses, opened)
        refused = self.refused_by_store, self.timed_out, self.shadow_refused
        return (*done, held, waiting, owed, lease.served, *refused, view.is_low(self.largest_cost))

    def publish(self) -> None:
        """Set `tokens.denied_until`, by which callers of cost 1 are refused without the lock."""
        if self.is_retired or self.tokens.available or self.mode != "enforce":
            self.tokens.denied_until = LONG_AGO
        elif self.denials is NO_DENIALS:
            self.tokens.denied_until = self.failing_until
        else:
            self.tokens.denied_until = max(self.failing_until, self.denials.until(1))
