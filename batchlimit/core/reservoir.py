"""What this process has leased of one bucket, who is in line for it, and what to do when it runs dry."""

import math
from collections.abc import Iterator
from enum import IntEnum

from batchlimit.core import debt
from batchlimit.core.batch import DEFAULT_SIZER, BatchSizer, Demand, Usage
from batchlimit.core.census import Census
from batchlimit.core.claim import NOW, Admit, Claim, Fail, Fetch, Refuse, Retired, Wait
from batchlimit.core.decision import Decision, outlook
from batchlimit.core.failure import CLOSED, FailurePolicy, NotAsked
from batchlimit.core.fallback import LEASE, Fallback, Wish, fallback
from batchlimit.core.figures import Figures
from batchlimit.core.grammar import LARGEST_BURST
from batchlimit.core.lease import Ask, GiveBack, Grant
from batchlimit.core.line import Line
from batchlimit.core.mark import first_look, low_mark, next_look
from batchlimit.core.memo import Memo
from batchlimit.core.pace import Pace
from batchlimit.core.quota import Quota
from batchlimit.core.stock import Stock
from batchlimit.core.terms import Fill, Terms

_AHEAD = 1.0
"""How far in the future (s) a waiting caller's grant may begin: what bounds the debt of the bucket."""
_REST = 0.1
"""After a failure nothing is asked in the background for this long (s); a caller who comes still asks at once."""
_LONG_REST = 1.0
"""The same while the store is given up: a thousand keys that owe something must not keep a host busy for nothing."""
_ABSOLVED = 60.0
"""For so long (s) after the return of the store a refund may be of what was admitted without it."""
_SHUT = 0.05
"""For so long (s) refuses from memory, without a lock, what could be asked for only at a store that is given up."""
_AWAKE = 1.0
"""For so long (s) after its last use a key stays awake: a busy one is not to rest and to wake at its every ask."""


class Prospect(IntEnum):
    """What memory says of a call, in the order in which who needs several keys turns to them: the store comes last."""

    REFUSED = 1
    ADMITTED = 2
    UNKNOWN = 3


class Reservoir:
    """One key's leased tokens, its waiters, and the rules between them.

    No method blocks, reads a clock or talks to a store, and all but `denies` want the front's lock held. A front
    spends with `stock.take`; when that fails it puts a Claim in line and calls `step` until it has a verdict, doing
    what it is told: Wait, or Fetch and report. After every call it wakes whom `to_wake` names.

    Callers are served in order of arrival. While anyone is in line the free tokens are set aside for the first of
    them, so small costs cannot starve a large one.
    """

    __slots__ = (
        "_absolved_at", "_asked", "_born", "_busy", "_closer", "_debt", "_demand", "_ended", "_fallback", "_host",
        "_idle_after", "_is_told", "_last_want", "_line", "_looks_at", "_lost_seq", "_owed", "_pace", "_policy",
        "_rest_until", "_seqs", "_shut_until", "_sizer", "_terms", "_unbacked", "_unrefunded", "_untouched", "_used",
        "_weight", "calls", "hungry", "largest", "memo", "quota", "refused", "retired", "stock",
    )  # fmt: skip

    def __init__(
        self,
        quota: Quota,
        host: str,
        seqs: Iterator[int],
        now: float,
        *,
        sizer: BatchSizer = DEFAULT_SIZER,
        fill: Fill = "share",
        idle_after: float = 10.0,
        born: float | None = None,
        weight: int = 1,
        policy: FailurePolicy = CLOSED,
        census: Census | None = None,
        memo: Memo | None = None,
    ) -> None:
        """`born` is when the quota was set, by the host's clock: now, unless told. `census` is of all its keys.

        `memo` is what the key's last reservoir left.
        """
        self.stock = Stock(now)
        self.hungry = self.retired = False
        self.refused = self.calls = 0
        self._host, self._seqs, self._sizer, self._idle_after = host, seqs, sizer, idle_after
        self._weight = weight
        self._demand, self._pace, self._line = Demand(now), Pace(), Line()
        self._terms = Terms(fill, census or Census())
        self._policy = policy
        self._fallback: Fallback | None = None  # stands in for the bucket, from the first failure on
        self._unbacked = 0  # tokens admitted without the store
        self._unrefunded = 0  # and those of them that may be refunded still
        self._absolved_at = math.inf
        self._owed = self._last_want = 0
        self._debt = debt.NONE
        self._asked = 0
        self._used = now
        self._born = now if born is None else born
        self._obey(quota)
        if quota.denies_all:
            self._pace.never()
        self._untouched = True
        self._rest_until = self._shut_until = -math.inf
        self._looks_at = math.inf  # whether callers are about to come upon the low mark
        self._busy: Fetch | GiveBack | None = None  # one thing at a time is under way to the store
        self._lost_seq: int | None = None
        self._ended: Exception | None = None
        self._closer: Claim | None = None
        self._is_told = False  # the bucket told of a quota that is not the one of our own
        self.memo: Memo | None = None  # for the key's next reservoir, when this one has retired to let the key rest
        if memo is not None:
            self._recall(memo)

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

    def take_low(self, cost: int) -> float:
        """Spend some of the last tokens, and have more fetched in the background: as `Stock.take`, after it had none.

        The one of each lease who comes upon the low mark is to notice nothing: by way of the line this took 200 us,
        every rule being cold after a thousand hits.
        """
        if not self.stock.low or cost > self.stock.tokens or self._line or self._busy is not None:
            return NOW
        self.stock.low, self.hungry = 0, True
        return self.stock.take(cost)

    # Waiting in line

    def join(self, claim: Claim) -> None:
        """Put a caller in line; with a deadline of NOW it takes the first answer."""
        if claim.cost == 0:
            claim.verdict = Admit(math.inf)
            return
        if claim.cost > self.largest:  # a front looks before, but the bucket may have told of a smaller quota since
            claim.verdict = self._too_much(claim)
            return
        self._line.join(claim)
        self.stock.set_aside()

    def step(self, claim: Claim, now: float) -> Admit | Refuse | Fail | Wait | Fetch:
        """Say what the caller with this claim does next; Retired if that is to begin anew with another reservoir."""
        self._advance(now)
        if isinstance(claim.verdict, Admit) and now >= claim.verdict.before:
            if self.retired and self._ended is None:
                raise Retired  # an ask from here too would be the same host's to the bucket, and mint tokens
            self._rejoin(claim)
        if self._ended is not None and claim.verdict is None:
            self._line.dismiss(claim, Fail(self._ended))
        if claim.verdict is not None:
            self._line.withdraw(claim)
            return claim.verdict
        if NOW < claim.deadline <= now:
            return self._refuse(claim, now)
        if self._busy is not None:
            return Wait(_within(math.inf, claim.deadline, now))
        if (pause := self._pause(now)) == 0.0:
            return self._ask(now, claim)
        if self._is_hopeless(claim, now):
            return self._refuse(claim, now)
        if claim is not self._line.leader:
            return Wait(_within(math.inf, claim.deadline, now))
        self._dismiss_hopeless(now)  # who came while something was under way, and hears of nothing else till then
        return Wait(_within(pause, claim.deadline, now))

    def leave(self, claim: Claim, now: float) -> None:
        """Take a caller out of line whatever its verdict, and wherever it was interrupted.

        Tokens that it was given stay here for others, unless they have expired, or the bucket was told meanwhile that
        they are spent: then it no longer counts them ours, and to send them back would be to mint what flowed in for
        them. It is not told so of a tentative claim's. An errand that the caller has not reported on has failed.
        """
        if self._busy is not None and claim.errand is self._busy:
            self._give_up(claim.errand, now)
        self._line.withdraw(claim)
        self.confirm(claim)
        if isinstance(claim.verdict, Admit) and claim.cost:
            is_here = now < claim.verdict.before and claim.verdict.term == self.stock.term
            back = self.stock.unspend(claim.cost, now) if is_here else 0
            self.stock.took_late(claim.cost - back)
        claim.verdict = None  # what it was given is returned once
        self._serve()

    def confirm(self, claim: Claim) -> None:
        """Let what a tentative claim was given be spent; for others there is nothing to confirm."""
        if claim.tentative and isinstance(claim.verdict, Admit):
            self.stock.confirm(claim.cost)
            claim.tentative = False

    def to_wake(self) -> list[Claim]:
        """Return the claims that have something to learn since the last call; wake them without the lock."""
        return self._line.to_wake()

    # Talking to the store

    def granted(self, fetch: Fetch, grant: Grant, now: float, jitter: float) -> None:
        """Take in the answer to `fetch`; `jitter` is a random factor of about 1."""
        if self._busy is not fetch:
            return  # its caller was interrupted: the next ask repeats the number, and gets the same tokens
        self._count(now)
        self._busy = self._lost_seq = None
        self._terms.learn(fetch, grant, now)
        if self._fallback is not None and self._fallback.full_at() <= now:
            self._fallback = None  # else it goes on where it was: a store that comes and goes mints nothing
        if grant.quota is not None:
            self._obey(grant.quota)
            self._is_told = True
        self._pace.learn(fetch, grant, self.quota, self._demand.rate, now, jitter)
        if self.stock.borrowed:
            self._pay_back(now)
            self._absolved_at = now + _ABSOLVED
        self.stock.credit(fetch, grant, now)
        self._untouched = True
        self._advance(now)
        for claim in self._line:  # each refusal may let others be served
            if claim.verdict is None and self._is_answered(claim, fetch, grant):
                self._refuse(claim, now)
        self._dismiss_hopeless(now)
        self._count(now)  # who was served just now used the key now, and not when somebody looks at it next
        self._aim(now)
        self._wake_next()

    def failed(self, fetch: Fetch, error: Exception | None, now: float) -> None:
        """Take note that `fetch` had no answer; None: its thread was interrupted, and another is to ask again.

        The ask may have been carried out all the same, so the next one repeats its number and gets the same tokens.
        """
        if self._busy is not fetch:
            return  # it was reported before
        self._busy = None
        self._rest_until = now + _REST
        if isinstance(error, NotAsked):
            self._unsent(now)
        else:
            self._lost_seq = fetch.ask.seq
        for claim in self._line:
            claim.asked = 0
        if error is not None and not self._fall_back(now):
            self._fail(error, now)
        self._serve()
        self._wake_next()

    @property
    def falls_back(self) -> bool:
        """Whether it is not the store that decides here: since the last failure, until the next grant."""
        return self.stock.borrowed

    def _give_up(self, errand: Fetch | GiveBack, now: float) -> None:
        if isinstance(errand, Fetch):
            self.failed(errand, None, now)
        else:
            self.gave_back(now)

    def gave_back(self, now: float, unsent: GiveBack | None = None) -> None:
        """Take note that a give-back is over, whether it arrived or not; it is never repeated, unless it was not sent.

        Then what it had of refunds is for the next one; leased tokens expire.
        """
        self._busy = None
        if unsent is not None:
            self._unsent(now)
            self._owed += unsent.refund
        self._advance(now)
        self._wake_next()

    def due(self) -> float:
        """Return the instant at which `tend` has something to do, if nothing happens before; inf: never."""
        if self.retired or self._busy is not None:
            return math.inf
        if self._owed:
            return self._rest_until
        if self._line:
            return self._collects_at()
        if self.hungry:
            return self._rest_until
        if self.stock.held == 0:
            return self._leaves_at()
        if self.stock.borrowed:
            return self.stock.expires
        margin = max(2 * self._terms.round_trip, 0.1 * self.stock.lease)
        return max(min(self.stock.expires - margin, self._looks_at), self._rest_until)

    def tend(self, now: float) -> Fetch | GiveBack | None:
        """Say what there is to do when no caller is here, if anything.

        Tokens in use are renewed before they expire; tokens nobody used go back; a reservoir that was empty and
        unused for a while retires, and a front must not use it any more. If it leaves a memo the key is at rest.
        """
        self._advance(now)
        self._count(now)  # whom the advance has served
        self._look(now)
        if self.due() > now:
            return None
        if self._owed:
            return self._repay()
        if self._line.first is not None:
            return self._ask(now, self._line.first)
        if self.hungry:
            return self._ask(now)
        if self.stock.held == 0:
            self.retired, self.memo = True, self._note(now)
            return None
        return self.drain() if self._untouched else self._renew(now)

    @property
    def uses(self) -> int:
        """A figure that is another one after each use; right without the lock as well, but for a use just now."""
        return self.stock.spent + self.refused

    def evict(self) -> bool:
        """Retire to make room; False where somebody is in line or being served, something under way, or owed.

        What is held here expires at the store, or is taken for spent when this host asks for the key again. To give it
        back would be a call of the store for each key that leaves: whoever invents keys would cost two instead of one.
        """
        if self._line or self._busy is not None or self._owed or self.stock.is_pledged:
            return False
        self.stock.forfeit()
        self.retired = True
        return True

    def close(self, error: Exception, closer: Claim) -> bool:
        """Fail whoever is in line, and retire; to be followed by `drain`.

        True: something is under way, and the closer is woken when that has ended, so that it can drain the rest too.
        """
        self.retired, self._ended = True, error
        for claim in self._line:
            if claim is not self._debt.claim:
                self._line.dismiss(claim, Fail(error))
        self._closer = closer
        return self._busy is not None

    def last_ask(self, now: float) -> Fetch | None:
        """Ask once more before all ends: for what is owed, and after an answer that was lost, and its tokens with it.

        What is owed and not in the bucket now is forgiven by `drain`.
        """
        self._advance(now)
        if self._busy is not None or (self._debt.total == 0 and self._lost_seq is None):
            return None
        return self._ask(now, ahead=0.0)

    def drain(self) -> GiveBack | None:
        """Let go of all free tokens; None when there are none, or while something else is under way."""
        if self._busy is not None:
            return None
        if self._ended is not None:
            self._line.withdraw(self._debt.claim)
            self._debt.forget()
        tokens = self.stock.empty()
        return self._return(tokens) if tokens or self._owed else None

    def refund(self, claim: Claim, now: float) -> GiveBack | None:
        """Take back the spent tokens of a claim that was admitted.

        What exceeds the lease they came from goes to the store, now or when it can.

        The store still counts all of this lease as ours until we report it spent, so within it a refund is free.
        """
        self._advance(now)
        if self.quota.denies_all:
            return None  # nothing was ever admitted
        cost = claim.cost - self._absorb(claim.cost, now)
        self._owed += cost - self.stock.refund(cost, now)
        self._pace.forget()
        self._serve()
        self._line.wake_leader()
        return self._repay(claim)

    def debit(self, tokens: int, now: float) -> None:
        """Charge tokens that were used and not admitted.

        What is here pays for them, in their turn, or what comes next: nobody waits for that but who comes behind.
        """
        self._advance(now)
        if self.quota.denies_all or self._ended is not None:
            return
        if self._debt is debt.NONE:
            self._debt = debt.Debt()
        self._debt.rest += tokens
        self._debt.line_up(self._line, self.largest)
        self._serve()

    def remaining(self, now: float) -> int:
        """Return how many tokens this host could still admit, by what it has and by what it last saw in the bucket."""
        borrowing = self._fallback if self.stock.borrowed else None
        return max(0, borrowing.level(now) if borrowing else self._terms.level) + self.spendable(now)

    @property
    def fails_closed(self) -> bool:
        """Whether callers are to hear of it when the store is away."""
        return self._policy == CLOSED

    def outlook(self, now: float) -> Decision | None:
        """Say how the next call would fare without the store; None: it would fail."""
        if (standby := self._standby(now)) is None:
            return None
        return outlook(self.quota, standby.level(now), self.spendable(now), "fallback")

    def spendable(self, now: float) -> int:
        """Return how many tokens are here for whoever comes now."""
        return self.stock.tokens if now < self.stock.expires else 0

    def figures(self) -> Figures:
        """Return what happened up to this moment."""
        waiting = len(self._line) - (self._debt.claim in self._line)
        spent, held = self.stock.spent, self.stock.held
        unbacked = self._unbacked + (spent - self.stock.admitted if self.stock.borrowed else 0)
        done = (spent, self.refused, self.calls, unbacked, self._terms.losses)
        return Figures(*done, held=held, waiting=waiting, owed=self._debt.total)

    # The rules within

    def _fall_back(self, now: float) -> bool:
        """Answer those in line without the store, as the policy says; False where it has no answer."""
        if self._line.leader is None:
            return True
        self._advance(now)
        standby = self._standby(now)
        if standby is None or self._line.leader is None:
            return standby is not None
        self._pay_back(now)
        first, queued = self._first_cost() - self.stock.held, self._line.cost - self.stock.held
        more = max(0, self._last_want - queued)
        tokens, wait = standby.grant(Wish(max(1, first), max(1, queued), more), now)
        self.stock.borrow(tokens, LEASE, now)
        self._pace.pause_for(wait, self._first_cost(), now)
        self._advance(now)
        for claim in self._line:  # each refusal may let others be served
            if claim.verdict is None and claim.deadline == NOW:
                self._refuse(claim, now)
        self._dismiss_hopeless(now)
        return True

    def _leaves_at(self) -> float:
        """Return when an empty reservoir retires: soon, if a memo is all that there is to keep, or when it is idle."""
        idle = self._used + self._idle_after
        if self._fallback is not None:
            return max(idle, self._fallback.full_at())
        if self._unrefunded or self._lost_seq is not None or self._is_told:
            return idle
        return min(idle, max(self._used + _AWAKE, self.stock.expires, self._pace.dry_until))

    def _note(self, now: float) -> Memo | None:
        """Return what is to be known when the key is asked for again; None where that is nothing any more."""
        if now >= self._used + self._idle_after:
            return None
        last_want = min(self._last_want, LARGEST_BURST)
        return Memo(self._used, self._demand.rate, self._demand.at, last_want, *self._terms.known())

    def _recall(self, memo: Memo) -> None:
        self._demand = Demand(memo.counted_at, memo.demand)
        self._last_want = int(memo.last_want)
        self._terms.recall(memo)

    def _pay_back(self, now: float) -> None:
        """Nobody used what is left of what was borrowed: it is for who needs it later."""
        if self._fallback is not None:
            self._fallback.put_back(self.stock.pay_back(), now)

    def _absorb(self, tokens: int, now: float) -> int:
        """Return how many of these refunded tokens were never the bucket's, as far as is known: it must not get them.

        Those that were admitted without the store come first, for a minute after its return.
        """
        if now >= self._absolved_at:
            self._unrefunded, self._absolved_at = 0, math.inf
        absorbed = min(tokens, self._unrefunded)
        self._unrefunded -= absorbed
        if self.stock.borrowed and self._fallback is not None:
            self._fallback.put_back(absorbed, now)
        return absorbed

    def _unsent(self, now: float) -> None:
        """Nothing went to the store, and nothing does in the background for a while: it is given up."""
        self.calls -= 1
        self._rest_until = now + _LONG_REST

    def _standby(self, now: float) -> Fallback | None:
        if self._fallback is None:
            self._fallback = fallback(self._policy, self.quota, *self._terms.last_seen(self.quota, now), now)
        return self._fallback

    def _fail(self, error: Exception, now: float) -> None:
        """Tell all in line, those too whom no ask spoke for yet: the next one would take as long to fail."""
        if isinstance(error, NotAsked):
            self._shut_until = now + _SHUT
        for claim in self._line:
            if claim is not self._debt.claim:
                self.refused += claim.cost
                self._line.dismiss(claim, Fail(error))

    def _obey(self, quota: Quota) -> None:
        self.quota = quota
        self._fallback = None
        self.largest = LARGEST_BURST if quota.denies_all else quota.largest_cost
        for claim in self._line:
            if claim.cost > self.largest and claim is not self._debt.claim:
                self._line.dismiss(claim, self._too_much(claim))
        self._debt.line_up(self._line, self.largest)

    def _too_much(self, claim: Claim) -> Fail:
        return Fail(ValueError(f"{claim.cost} tokens never fit a burst of {self.largest}"))

    def _pause(self, now: float) -> float:
        """Return for how long (s) the first in line has nothing to ask for."""
        return self._coming(now) or self._pace.pause(self._first_cost(), now)

    def _coming(self, now: float) -> float:
        """Return in how many seconds begins what was granted for later, if it is enough for the first in line; or 0."""
        return max(0.0, self._comes_at() - now)

    def _comes_at(self) -> float:
        return self.stock.comes_at if self.stock.held >= self._first_cost() else -math.inf

    def _count(self, now: float) -> None:
        """Find out what was spent since the last count, and asked for; the hit path itself counts nothing.

        Whoever is in line counts as asking from the moment of joining: a crowd at a cold key is demand at once.
        """
        spent = self.stock.count(now)
        if self.stock.borrowed:
            self._unbacked += spent
            self._unrefunded += spent
        total = self.stock.admitted + self.refused + self._line.cost
        asked, self._asked = total - self._asked, total
        self._demand.observe(asked, now)
        if asked or spent:
            self._used = now
        self._untouched = self._untouched and not spent

    def _advance(self, now: float) -> None:
        self._count(now)
        if self.stock.borrowed and now >= self.stock.expires:
            self._pay_back(now)
        self.stock.advance(now)
        self._serve()
        if self.stock.tokens < self.stock.low and self._busy is None:
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

    def _collects_at(self) -> float:
        """Return when to ask for what is owed; inf where a caller is in line: its leader looks after that too."""
        if self._line.leader is not None:
            return math.inf
        return max(self._rest_until, self._pace.until(1), self._comes_at())

    def _wake_next(self) -> None:
        """The leader may send something to the store now, or whoever closes."""
        self._line.wake_leader()
        if self._closer is not None:
            self._line.wake(self._closer)

    def _refuse(self, claim: Claim, now: float) -> Refuse:
        """Send a caller away; if nothing better is known, it may come back when its cost has flowed in once more."""
        self.refused += claim.cost
        ahead = self._first_cost() if claim in self._line else 0
        if wait := self._pace.wait(max(claim.cost, ahead), now):
            wait = max(wait, self._backlog(claim, now))
        else:
            wait = claim.cost / min(each.rate for each in self.quota.bandwidths)
        verdict = Refuse(wait)
        self._line.dismiss(claim, verdict)
        self._serve()
        self._line.wake_leader()
        return verdict

    def _is_answered(self, claim: Claim, fetch: Fetch, grant: Grant) -> bool:
        """Whether an answer is all that this caller waits for: the bucket was short.

        The answer to a repeated ask is about an older question; and a grant that came too late to be spent says
        nothing about the bucket, so the caller may ask once more.
        """
        short = grant.granted < fetch.ask.queued
        return claim.deadline == NOW and not fetch.repeated and claim.asked >= (1 if short else 2)

    def _dismiss_hopeless(self, now: float) -> None:
        for claim in self._line:
            if claim.verdict is None and self._is_hopeless(claim, now):
                self._refuse(claim, now)

    def _is_hopeless(self, claim: Claim, now: float) -> bool:
        """Whether the bucket is known to be short until after this caller's deadline, or for ever.

        Where nothing is known of a lately short bucket, what it was when last seen says nothing either: tokens come
        back to it, from here and from other hosts, and its quota may have been raised.
        """
        wait = max(self._coming(now), self._pace.wait(self._first_cost(), now))
        if wait == 0.0 or claim.deadline == math.inf:
            return wait == math.inf
        return now + max(wait, self._backlog(claim, now)) > claim.deadline

    def _backlog(self, claim: Claim, now: float) -> float:
        """Return the seconds that it takes at the least until there was enough for those ahead of a claim, and for it.

        What is not here, nor was in the bucket when last it was seen, has to flow in first; others may take of it too.
        """
        if claim not in self._line:
            return 0.0
        debt = self._debt.claim
        rest = self._debt.rest if debt in self._line and debt.number < claim.number else 0
        missing = self._line.ahead_of(claim) + rest + claim.cost - self.stock.held
        return self._terms.to_flow_in(missing, self.quota, now)

    def _rejoin(self, claim: Claim) -> None:
        """Put a caller back in its place whose tokens expired before it woke."""
        self._line.join(claim)
        if claim.tentative:
            self.stock.confirm(claim.cost)
        claim.verdict, claim.asked = None, 0
        self.stock.took_late(claim.cost)
        self.stock.set_aside()
        self._serve()

    def _repay(self, claim: Claim | None = None) -> GiveBack | None:
        return self._return(0, claim) if self._owed and self._busy is None else None

    def _return(self, tokens: int, claim: Claim | None = None) -> GiveBack:
        """Send tokens back, and refunds with them. A lost ask is not repeated after this: its number is too old."""
        self.calls += 1
        back = GiveBack(self._host, next(self._seqs), tokens, self.stock.report(), self._owed)
        self._owed, self._lost_seq = 0, None
        self._begin(back, claim)
        return back

    def _begin(self, errand: Fetch | GiveBack, claim: Claim | None) -> None:
        """Let an errand be under way; first its caller is to know of it, who gives it up when interrupted."""
        if claim is not None:
            claim.errand = errand
        self._busy = errand

    def _ask(self, now: float, claim: Claim | None = None, back: int = 0, ahead: float = _AHEAD) -> Fetch:
        first, needed, pool = self._line.first, self._first_cost(), self.stock.leased
        queued = max(0, self._line.cost - pool)
        target = self._target(pool)
        self._last_want = max(queued, target - pool, 0)
        for each in self._line:
            each.asked += 1
        ask = Ask(
            host=self._host,
            seq=next(self._seqs) if self._lost_seq is None else self._lost_seq,
            need=max(0, needed - pool),
            queued=queued,
            want=self._last_want,
            held=self.stock.report(),
            back=back,
            max_wait=max(0.0, min(ahead, first.deadline - now)) if first else 0.0,
            age=max(0.0, now - self._born),
            epoch=self._terms.epoch(self.quota, now),
            fill=self._terms.fill,
            round_trip=self._terms.round_trip,
            weight=self._weight,
        )
        self.hungry, self.stock.low, self._looks_at = False, 0, math.inf
        self.calls += 1
        fetch = Fetch(ask, self.quota, now, needed, self._lost_seq is not None)
        self._begin(fetch, claim)
        return fetch

    def _renew(self, now: float) -> Fetch:
        """Ask again before the lease ends, and return what the present demand will not use up."""
        self.stock.lay_down()
        back = max(0, self.stock.loose - self._target(self.stock.loose))
        self.stock.remove(back)
        return self._ask(now, back=back)

    def _target(self, left: int) -> int:
        rich = self._terms.is_rich(self.quota)
        return self._sizer.want(Usage(self.quota, self._demand.rate, self._last_want, left, rich))

    def _aim(self, now: float) -> None:
        """Set with how few tokens more are fetched in the background, and when to look how many are left."""
        demand, tokens = self._demand.rate, self.stock.tokens
        low = 0 if self._pace.pause(1, now) else low_mark(tokens, demand, self._terms.round_trip)
        self.stock.keep(low)
        self._looks_at = now + first_look(tokens, low, demand) if low else math.inf

    def _look(self, now: float) -> None:
        """Be hungry just before a caller would come upon the low mark, or look again later."""
        if now >= self._looks_at:
            seconds = next_look(self.stock.tokens - self.stock.low, self._demand.rate)
            self._looks_at = now + seconds
            self.hungry = self.hungry or seconds == 0.0


def _within(seconds: float, deadline: float, now: float) -> float | None:
    """Return `seconds`, but no longer than a waiting caller's deadline; None for as long as it takes."""
    if deadline != NOW:
        seconds = min(seconds, deadline - now)
    return None if seconds == math.inf else seconds
