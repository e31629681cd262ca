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
from batchlimit.reservoir.waiter import NO_WAIT, Admit, Fail, Refuse, Waiter

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
        "_asked", "_debt", "_demand", "_line", "_pace", "_shut_until", "_standby", "_terms", "_untouched", "_used",
        "hungry", "largest", "quota", "refused", "retired", "stock",
    )  # fmt: skip

    def __init__(self, quota: Quota, policy: FailurePolicy, fill: Fill, census: InstanceCount, now: float) -> None:
        self.stock = LeasedTokens(now)
        self.hungry = self.retired = False
        self.refused = 0
        self._demand, self._pace, self._line = Demand(now), DenialCache(), WaitQueue()
        self._terms = BucketView(fill, census)
        self._standby = Fallback(policy)
        self._debt = NO_OVERDRAFT
        self._asked = 0
        self._used = now
        self._untouched = True
        self._shut_until = -math.inf
        self._obey(quota)
        if quota.denies_all:
            self._pace.never()

    def __repr__(self) -> str:
        return f"<Reservoir {self.quota}: {self.stock}, {len(self._line)} in line, {self._pace}>"

    def denies(self, cost: int, now: float) -> float:
        """Return when (s) `cost` is expected to fit if it is to be refused from memory; 0.0: it is not.

        Safe without the lock: a few reads, and an answer that was right a moment ago.
        """
        if not self.stock.tokens < cost <= self.largest:
            return 0.0
        if now < self._shut_until:
            return self._shut_until - now
        if self._pace.pause(cost, now) == 0.0:
            return 0.0
        return self._pace.wait(cost, now)

    @property
    def shut_until(self) -> float:
        """Until when a call of cost 1 is refused from memory, by what is here now; -inf: it is not."""
        if self.retired or self.stock.tokens:
            return -math.inf
        return max(self._shut_until, self._pace.until(1))

    def prospect(self, cost: int, now: float) -> Prospect:
        """Say what would become of `cost` now, by memory alone; as safe without the lock as `denies`."""
        if self.denies(cost, now):
            return Prospect.REFUSED
        return Prospect.ADMITTED if cost <= self.spendable(now) else Prospect.UNKNOWN

    def spendable(self, now: float) -> int:
        """Return how many tokens are here for whoever comes now."""
        return self.stock.tokens if now < self.stock.expires else 0

    def remaining(self, now: float) -> int:
        """Return how many tokens this host could still admit, by what it has and by what it last saw in the bucket."""
        borrowing = self._standby.fallback if self.stock.borrowed else None
        return max(0, borrowing.level(now) if borrowing else self._terms.level) + self.spendable(now)

    def outlook(self, now: float) -> Decision | None:
        """Say how the next call would fare without the store; None: it would fail."""
        if (fallback := self._standby.stand_in(self.quota, self._terms, now)) is None:
            return None
        return outlook(self.quota, fallback.level(now), self.spendable(now), "fallback")

    @property
    def fails_closed(self) -> bool:
        """Whether callers are to hear of it when the store is away."""
        return self._standby.fails_closed

    def failure(self, error: Exception) -> Fail:
        """Return what to tell who needs the store, which failed, where nothing stands in for it."""
        return Fail(error, self._standby.hint)

    @property
    def falls_back(self) -> bool:
        """Whether it is not the store that decides here: since the last failure, until the next grant."""
        return self.stock.borrowed

    @property
    def uses(self) -> int:
        """A figure that is another one after each use; right without the lock as well, but for a use just now."""
        return self.stock.spent + self.refused

    @property
    def is_held_up(self) -> bool:
        """Whether an ask is to wait for prompt claims to be confirmed: for this turn of their loop.

        It would tell the bucket that we hold what they are about to spend, and the bucket keeps room for that. Of a
        small burst so much does not flow in meanwhile: at a burst of 1 half of the rate was used.
        """
        return self.stock.prompt * _SMALL > self.largest

    # Waiting in line

    def join(self, claim: Waiter) -> None:
        """Put a caller in line; with a deadline of NOW it takes the first answer."""
        if claim.cost == 0:
            claim.verdict = Admit(math.inf)
            return
        if claim.cost > self.largest:  # a front looks before, but the bucket may have told of a smaller quota since
            claim.verdict = self._too_much(claim)
            return
        self._line.join(claim)
        self.stock.set_aside()

    def confirm(self, claim: Waiter) -> bool:
        """Let what a tentative claim was given be spent; for others there is nothing to confirm.

        Returns:
            Whether somebody may ask now who waited for that, and is to be woken.
        """
        if claim.tentative and isinstance(claim.verdict, Admit):
            claim.tentative = False  # first: to confirm it twice would be to forget what others were given
            return self._confirm(claim)
        return False

    def to_wake(self) -> list[Waiter]:
        """Return the claims that have something to learn since the last call; wake them without the lock."""
        return self._line.to_wake()

    # The rules within

    def _confirm(self, claim: Waiter) -> bool:
        was_held_up = self.is_held_up
        self.stock.confirm(claim)
        if is_free := was_held_up and not self.is_held_up:
            self._line.wake_leader()
        return is_free

    def _obey(self, quota: Quota) -> None:
        self.quota = quota
        self._standby.fallback = None
        self.largest = LARGEST_BURST if quota.denies_all else quota.largest_cost
        self._line.flow(1.0 / fastest if (fastest := max(each.rate for each in quota.bandwidths)) else 0.0)
        for claim in self._line:
            if claim.cost > self.largest and claim is not self._debt.claim:
                self._line.dismiss(claim, self._too_much(claim))
        self._debt.line_up(self._line, self.largest)

    def _too_much(self, claim: Waiter) -> Fail:
        return Fail(ValueError(f"{claim.cost} tokens never fit a burst of {self.largest}"))

    def _count(self, now: float) -> None:
        """Find out what was spent since the last count, and asked for; the hit path itself counts nothing.

        Whoever is in line counts as asking from the moment of joining: a crowd at a cold key is demand at once.
        """
        spent = self.stock.count(now)
        if self.stock.borrowed:
            self._standby.count(spent)
        total = self.stock.admitted + self.refused + self._line.cost
        asked, self._asked = total - self._asked, total
        self._demand.observe(asked, now)
        if asked or spent:
            self._used = now
        self._untouched = self._untouched and not spent

    def _advance(self, now: float) -> None:
        self._count(now)
        if self.stock.borrowed and now >= self.stock.expires:
            self._standby.pay_back(self.stock, now)
        self.stock.advance(now)
        self._serve()
        if self.stock.tokens < self.stock.low:
            self.stock.low, self.hungry = 0, True

    def _serve(self) -> None:
        """Give what is here to whom it belongs, in order of arrival: to callers, and to what is owed."""
        self.stock.serve(self._line, self._debt.claim)
        while self._line.first is self._debt.claim and (paid := self.stock.pay(self._debt.claim.cost)):
            self._debt.pay(paid, self._line, self.largest)
            self.stock.serve(self._line, self._debt.claim)

    def _first_cost(self) -> int:
        """Return what must be here before anybody can be served: a debt needs no whole. 0: nobody is in line."""
        return 1 if self._line.first is self._debt.claim else self._line.first_cost

    def _pause(self, claim: Waiter, now: float) -> float:
        """Return for how long (s) this caller has nothing to ask for: the first in line has not."""
        pause = self._pace.pause if claim.deadline == NO_WAIT else self._pace.pause_of_waiter
        return self._coming(now) or pause(self._first_cost(), now)

    def _coming(self, now: float) -> float:
        """Return in how many seconds begins what was granted for later, if it is enough for the first in line; or 0."""
        return max(0.0, self._comes_at() - now)

    def _comes_at(self) -> float:
        return self.stock.comes_at if self.stock.held >= self._first_cost() else -math.inf

    def _refuse(self, claim: Waiter, now: float) -> Refuse:
        """Send a caller away; if nothing better is known, it may come back when its cost has flowed in once more."""
        self.refused += claim.cost
        ahead = self._first_cost() if claim in self._line else 0
        if wait := self._pace.wait(max(claim.cost, ahead), now):
            wait = max(wait, self._backlog(claim, now))
        else:
            wait = claim.cost / min(each.rate for each in self.quota.bandwidths)
        verdict, was_first = Refuse(wait), claim is self._line.first
        self._line.dismiss(claim, verdict)
        if was_first:
            self._serve()
        return verdict

    def _turn_away(self, claim: Waiter, now: float) -> Refuse:
        """Refuse one who looked; if it was the leader, another is now."""
        verdict = self._refuse(claim, now)
        self._line.wake_leader()
        return verdict

    def _dismiss_hopeless(self, now: float) -> None:
        """Refuse whoever cannot be served in time; each who goes leaves more for those behind."""
        while (claim := self._line.first_late(self._horizon(now))) is not None:
            if claim.verdict is None:
                self._refuse(claim, now)
            else:  # whoever told it was interrupted
                self._line.dismiss(claim, claim.verdict)

    def _is_hopeless(self, claim: Waiter, now: float) -> bool:
        return claim in self._line and self._line.is_late(claim, self._horizon(now))

    def _horizon(self, now: float) -> Horizon:
        """Say who in line is hopeless: the bucket is known to be short until after their deadline, or for ever.

        Where nothing is known of a lately short bucket, what it was when last seen says nothing either: tokens come
        back to it, from here and from other hosts, and its quota may have been raised.
        """
        wait = max(self._coming(now), self._pace.wait(self._first_cost(), now))
        if wait == 0.0 or wait == math.inf:
            return NEVER if wait else NEAR
        return Horizon(now + wait, self._terms.flows_since(self.stock.held, self.quota))

    def _backlog(self, claim: Waiter, now: float) -> float:
        """Return the seconds that it takes at the least until there was enough for those ahead of a claim, and for it.

        What is not here, nor was in the bucket when last it was seen, has to flow in first; others may take of it too.
        """
        if claim not in self._line:
            return 0.0
        missing = self._line.ahead_of(claim) + claim.cost - self.stock.held
        return self._terms.to_flow_in(missing, self.quota, now)

    def _rejoin(self, claim: Waiter) -> None:
        """Put a caller back in its place whose tokens expired before it woke."""
        self._line.join(claim)
        if claim.tentative:
            self._confirm(claim)
        claim.verdict, claim.asked = None, 0
        self.stock.took_late(claim.cost)
        self.stock.set_aside()
        self._serve()
