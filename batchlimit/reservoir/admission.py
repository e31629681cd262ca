"""The tokens of one key that are here, who is in line for them, and when there will be more; it asks nobody."""

import math
from enum import IntEnum

from batchlimit.quota.grammar import LARGEST_BURST
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import BucketView, Fill, InstanceCount
from batchlimit.reservoir.debt import NO_OVERDRAFT
from batchlimit.reservoir.denial_cache import DenialCache
from batchlimit.reservoir.depths import NEAR, NEVER, Horizon
from batchlimit.reservoir.failure_policy import FailurePolicy
from batchlimit.reservoir.fallback import Fallback
from batchlimit.reservoir.sizing import Demand
from batchlimit.reservoir.statistics import Decision, outlook
from batchlimit.reservoir.tokens import LeasedTokens
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import Admit, Fail, Refuse, Waiter
from batchlimit.waiting import NO_WAIT

_SMALL = 16
"""Where this many times as much fits the burst, what is about to be spent is no part of it that matters."""


class Prospect(IntEnum):
    """What memory says of a call, in the order in which who needs several keys turns to them: the store comes last."""

    REFUSED = 1
    ADMITTED = 2
    UNKNOWN = 3


class Admission:
    """What is known of one key without the store: a Reservoir is one that asks.

    Callers are served in order of arrival. While anyone is in line the free tokens are set aside for the first of
    them, so small costs cannot starve a large one.
    """

    __slots__ = (
        "_asked",
        "_demand",
        "_denials",
        "_failing_until",
        "_fallback",
        "_overdraft",
        "_queue",
        "_untouched",
        "_used",
        "_view",
        "is_retired",
        "largest_cost",
        "quota",
        "refused",
        "tokens",
        "wants_refill",
    )  # fmt: skip

    def __init__(
        self, quota: Quota, policy: FailurePolicy, fill: Fill, instance_count: InstanceCount, now: float
    ) -> None:
        self.tokens = LeasedTokens(now)
        self.wants_refill = self.is_retired = False
        self.refused = 0
        self._demand, self._denials, self._queue = Demand(now), DenialCache(), WaitQueue()
        self._view = BucketView(fill, instance_count)
        self._fallback = Fallback(policy)
        self._overdraft = NO_OVERDRAFT
        self._asked = 0
        self._used = now
        self._untouched = True
        self._failing_until = -math.inf
        self._obey(quota)
        if quota.denies_all:
            self._denials.never()

    def __repr__(self) -> str:
        return f"<Reservoir {self.quota}: {self.tokens}, {len(self._queue)} in line, {self._denials}>"

    def denied_for(self, cost: int, now: float) -> float:
        """Return when (s) `cost` is expected to fit if it is to be refused from memory; 0.0: it is not.

        Safe without the lock: a few reads, and an answer that was right a moment ago.
        """
        if not self.tokens.available < cost <= self.largest_cost:
            return 0.0
        if now < self._failing_until:
            return self._failing_until - now
        if self._denials.pause(cost, now) == 0.0:
            return 0.0
        return self._denials.wait(cost, now)

    @property
    def denied_until(self) -> float:
        """Until when a call of cost 1 is refused from memory, by what is here now; -inf: it is not."""
        if self.is_retired or self.tokens.available:
            return -math.inf
        return max(self._failing_until, self._denials.until(1))

    def prospect(self, cost: int, now: float) -> Prospect:
        """Say what would become of `cost` now, by memory alone; as safe without the lock as `denies`."""
        if self.denied_for(cost, now):
            return Prospect.REFUSED
        return Prospect.ADMITTED if cost <= self.spendable(now) else Prospect.UNKNOWN

    def spendable(self, now: float) -> int:
        """Return how many tokens are here for whoever comes now."""
        return self.tokens.available if now < self.tokens.expires else 0

    def remaining(self, now: float) -> int:
        """Return how many tokens this instance could still admit: what it has, and what it last saw in the bucket."""
        borrowing = self._fallback.bucket if self.tokens.borrowed else None
        return max(0, borrowing.level(now) if borrowing else self._view.level) + self.spendable(now)

    def outlook(self, now: float) -> Decision | None:
        """Say how the next call would fare without the store; None: it would fail."""
        if (fallback := self._fallback.bucket_now(self.quota, self._view, now)) is None:
            return None
        return outlook(self.quota, fallback.level(now), self.spendable(now), "fallback")

    @property
    def fails_closed(self) -> bool:
        """Whether callers are to hear of it when the store is away."""
        return self._fallback.fails_closed

    def failure(self, error: Exception) -> Fail:
        """Return what to tell who needs the store, which failed, where nothing stands in for it."""
        return Fail(error, self._fallback.hint)

    @property
    def falls_back(self) -> bool:
        """Whether it is not the store that decides here: since the last failure, until the next grant."""
        return self.tokens.borrowed

    @property
    def uses(self) -> int:
        """A figure that is another one after each use; right without the lock as well, but for a use just now."""
        return self.tokens.spent + self.refused

    @property
    def is_held_up(self) -> bool:
        """Whether an ask is to wait for prompt waiters to be confirmed: for this turn of their loop.

        It would tell the bucket that we hold what they are about to spend, and the bucket keeps room for that. Of a
        small burst so much does not flow in meanwhile: at a burst of 1 half of the rate was used.
        """
        return self.tokens.prompt * _SMALL > self.largest_cost

    # Waiting in line

    def join(self, waiter: Waiter) -> None:
        """Put a caller in line; with a deadline of NOW it takes the first answer."""
        if waiter.cost == 0:
            waiter.verdict = Admit(math.inf)
            return
        if (
            waiter.cost > self.largest_cost
        ):  # an API looks before, but the bucket may have told of a smaller quota since
            waiter.verdict = self._too_much(waiter)
            return
        self._queue.join(waiter)
        self.tokens.set_aside()

    def confirm(self, waiter: Waiter) -> bool:
        """Let what a tentative waiter was given be spent; for others there is nothing to confirm.

        Returns:
            Whether somebody may ask now who waited for that, and is to be woken.
        """
        if waiter.tentative and isinstance(waiter.verdict, Admit):
            waiter.tentative = False  # first: to confirm it twice would be to forget what others were given
            return self._confirm(waiter)
        return False

    def to_wake(self) -> list[Waiter]:
        """Return the waiters that have something to learn since the last call; wake them without the lock."""
        return self._queue.to_wake()

    # The rules within

    def _confirm(self, waiter: Waiter) -> bool:
        was_held_up = self.is_held_up
        self.tokens.confirm(waiter)
        if is_free := was_held_up and not self.is_held_up:
            self._queue.wake_leader()
        return is_free

    def _obey(self, quota: Quota) -> None:
        self.quota = quota
        self._fallback.bucket = None
        self.largest_cost = LARGEST_BURST if quota.denies_all else quota.largest_cost
        self._queue.flow(1.0 / fastest if (fastest := max(each.rate for each in quota.bandwidths)) else 0.0)
        for waiter in self._queue:
            if waiter.cost > self.largest_cost and waiter is not self._overdraft.waiter:
                self._queue.dismiss(waiter, self._too_much(waiter))
        self._overdraft.line_up(self._queue, self.largest_cost)

    def _too_much(self, waiter: Waiter) -> Fail:
        return Fail(ValueError(f"{waiter.cost} tokens never fit a burst of {self.largest_cost}"))

    def _count(self, now: float) -> None:
        """Find out what was spent since the last count, and asked for; the hit path itself counts nothing.

        Whoever is in line counts as asking from the moment of joining: a crowd at a cold key is demand at once.
        """
        spent = self.tokens.count_spent(now)
        if self.tokens.borrowed:
            self._fallback.count(spent)
        total = self.tokens.admitted + self.refused + self._queue.cost
        asked, self._asked = total - self._asked, total
        self._demand.observe(asked, now)
        if asked or spent:
            self._used = now
        self._untouched = self._untouched and not spent

    def _advance(self, now: float) -> None:
        self._count(now)
        if self.tokens.borrowed and now >= self.tokens.expires:
            self._fallback.pay_back(self.tokens, now)
        self.tokens.advance(now)
        self._serve()
        if self.tokens.available < self.tokens.low_watermark:
            self.tokens.low_watermark, self.wants_refill = 0, True

    def _serve(self) -> None:
        """Give what is here to whom it belongs, in order of arrival: to callers, and to what is owed."""
        self.tokens.serve(self._queue, self._overdraft.waiter)
        while self._queue.first is self._overdraft.waiter and (paid := self.tokens.pay(self._overdraft.waiter.cost)):
            self._overdraft.pay(paid, self._queue, self.largest_cost)
            self.tokens.serve(self._queue, self._overdraft.waiter)

    def _first_cost(self) -> int:
        """Return what must be here before anybody can be served: a debt needs no whole. 0: nobody is in line."""
        return 1 if self._queue.first is self._overdraft.waiter else self._queue.first_cost

    def _pause(self, waiter: Waiter, now: float) -> float:
        """Return for how long (s) this caller has nothing to ask for: the first in line has not."""
        pause = self._denials.pause if waiter.deadline == NO_WAIT else self._denials.pause_of_waiter
        return self._coming(now) or pause(self._first_cost(), now)

    def _coming(self, now: float) -> float:
        """Return in how many seconds begins what was granted for later, if it is enough for the first in line; or 0."""
        return max(0.0, self._comes_at() - now)

    def _comes_at(self) -> float:
        return self.tokens.pending_from if self.tokens.held >= self._first_cost() else -math.inf

    def _refuse(self, waiter: Waiter, now: float) -> Refuse:
        """Send a caller away; if nothing better is known, it may come back when its cost has flowed in once more."""
        self.refused += waiter.cost
        ahead = self._first_cost() if waiter in self._queue else 0
        if wait := self._denials.wait(max(waiter.cost, ahead), now):
            wait = max(wait, self._backlog(waiter, now))
        else:
            wait = waiter.cost / min(each.rate for each in self.quota.bandwidths)
        verdict, was_first = Refuse(wait), waiter is self._queue.first
        self._queue.dismiss(waiter, verdict)
        if was_first:
            self._serve()
        return verdict

    def _turn_away(self, waiter: Waiter, now: float) -> Refuse:
        """Refuse one who looked; if it was the leader, another is now."""
        verdict = self._refuse(waiter, now)
        self._queue.wake_leader()
        return verdict

    def _dismiss_hopeless(self, now: float) -> None:
        """Refuse whoever cannot be served in time; each who goes leaves more for those behind."""
        while (waiter := self._queue.first_late(self._horizon(now))) is not None:
            if waiter.verdict is None:
                self._refuse(waiter, now)
            else:  # whoever told it was interrupted
                self._queue.dismiss(waiter, waiter.verdict)

    def _is_hopeless(self, waiter: Waiter, now: float) -> bool:
        return waiter in self._queue and self._queue.is_late(waiter, self._horizon(now))

    def _horizon(self, now: float) -> Horizon:
        """Say who in line is hopeless: the bucket is known to be short until after their deadline, or for ever.

        Where nothing is known of a lately short bucket, what it was when last seen says nothing either: tokens come
        back to it, from here and from other instances, and its quota may have been raised.
        """
        wait = max(self._coming(now), self._denials.wait(self._first_cost(), now))
        if wait == 0.0 or wait == math.inf:
            return NEVER if wait else NEAR
        return Horizon(now + wait, self._view.flows_since(self.tokens.held, self.quota))

    def _backlog(self, waiter: Waiter, now: float) -> float:
        """Return the seconds that it takes at the least until there was enough for those ahead of a waiter, and for it.

        What is not here, nor was in the bucket when last it was seen, has to flow in first; others may take of it too.
        """
        if waiter not in self._queue:
            return 0.0
        missing = self._queue.ahead_of(waiter) + waiter.cost - self.tokens.held
        return self._view.to_flow_in(missing, self.quota, now)

    def _rejoin(self, waiter: Waiter) -> None:
        """Put a caller back in its place whose tokens expired before it woke."""
        self._queue.join(waiter)
        if waiter.tentative:
            self._confirm(waiter)
        waiter.verdict, waiter.asked = None, 0
        self.tokens.took_late(waiter.cost)
        self.tokens.set_aside()
        self._serve()
