"""The tokens that this process has leased of one bucket: how many, until when, and what became of them."""

import math
import sys
from itertools import islice, repeat
from operator import length_hint

from batchlimit.bucket.messages import Grant
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import Admit, Fetch, Waiter
from batchlimit.waiting import LONG_AGO

NO_TOKENS: "repeat[float]" = repeat(-math.inf, 0)
"""Where no token is laid out."""
_IS_ATOMIC = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether a step of an iterator written in C is one to all threads: so it is under the GIL, and not without."""
MOST = 4096 if _IS_ATOMIC else 0
"""How many tokens are laid out at a time: to take them all back takes 4 ns each, in which nobody else runs."""
_PART = 8
"""Who needs several takes an eighth of what is laid out, or more: the next one who does finds them loose."""
ONE = 1
"""The usual cost, by identity: True and 1.0 equal it as well, and are errors."""


class LeasedTokens:
    """Tokens to spend (`tokens`), set aside for who is in line (`saved`), and granted for later (`coming`).

    Of those to spend most are laid out in `ready`, an iterator each step of which is one token, and whose value is the
    end of its lease: who gets it has it, whatever becomes of the rest, for no other step brings the same one. So a hit
    needs no lock. (A lock and a subtraction took 200 ns, or 20 times as long for 64 threads when a thread lost the GIL
    in between; a step takes 10.) All else is done under the API's lock: the `loose` tokens are spent there, and what
    is laid out is taken back by the same steps before it is given to anyone else.

    Nothing counts a hit: what was spent is what is missing since the last `count`. `recorded` is how many tokens the
    bucket counts as leased to us at the least, whatever is under way: only so many may ever be held or taken back.

    Tokens may also be `borrowed`: granted by this instance to itself while the store is away. Those are not the
    bucket's: it is never told of them, none go back to it, and with its next grant they are gone.
    """

    __slots__ = (
        "_base",
        "_foreign",
        "_pledged",
        "_recorded",
        "_singly",
        "_starts",
        "admitted",
        "borrowed",
        "denied_until",
        "expires",
        "free",
        "generation",
        "lock_free",
        "low_watermark",
        "pending",
        "prompt",
        "refused",
        "reserved_for_waiters",
        "told",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.free = self.reserved_for_waiters = self.pending = 0
        self.lock_free = NO_TOKENS
        self.denied_until = LONG_AGO  # before it a call of cost 1 is refused without a lock
        self._singly = False  # whether the last who came here took one
        self.low_watermark = 0  # with fewer tokens than this a hit becomes a miss, so that more are fetched in time
        self.expires = now
        self.admitted = self.refused = 0
        self._starts = now
        self._base = self._recorded = 0
        self._pledged = 0  # what was given to waiters that are tentative still
        self.prompt = 0  # and to those of them that are prompt
        self.borrowed = False
        self._foreign = 0  # of what is borrowed, what was left of a lease
        self.told = 0  # how often the bucket was told what is held: whatever was spent before is spent there, too
        self.generation = 0  # another one whenever what is here begins to be the bucket's, or ceases to be, or is lost

    def __repr__(self) -> str:
        held = f"{self.available} available, {self.reserved_for_waiters} reserved, {self.pending} pending"
        return f"<LeasedTokens {held}, until {self.expires:.3f}>"

    def take(self, cost: int) -> float:
        """Spend `cost` tokens and return the instant before which that counts; -inf if there are too few.

        The caller reads its clock after this and is admitted if it reads less: a process that was stopped past its
        lease finds out at the moment of spending.
        """
        ready, missing = length_hint(self.lock_free), cost + self.low_watermark - self.free
        if missing > ready:
            return -math.inf
        if missing > 0:
            self._pick_up(max(missing, ready // _PART if cost > 1 else 0))
        left = self.free - cost
        if left < self.low_watermark:  # others were faster
            return -math.inf
        self.free, self._singly = left, cost == 1
        if self._singly:
            self._publish()
        return self.expires

    def has(self, cost: int, now: float) -> bool:
        """Whether so many are here to be spent, and none of the last ones below the low watermark is among them."""
        return now < self.expires and self.available >= cost + self.low_watermark

    def take_here(self, cost: int) -> float:
        """As `take`, where one loop alone spends and `has` just said yes: one token that is laid out is one step."""
        if cost is ONE:
            for before in self.lock_free:
                return before
        return self.take(cost)

    def _publish(self) -> None:
        """Let who comes next spend without the lock: but for the `low`, for that is where more are asked for."""
        if self.free > self.low_watermark and MOST:
            self.reclaim()
            tokens = min(MOST, self.free - self.low_watermark)
            self.free -= tokens
            self.lock_free = repeat(self.expires, tokens)

    def reclaim(self) -> None:
        """Take back what is laid out: from here on nobody spends any without the lock."""
        if self.lock_free is not NO_TOKENS:
            self._pick_up(MOST)
            self.lock_free = NO_TOKENS

    def _pick_up(self, tokens: int) -> None:
        """Take back so many, or all. Who steps at the same time gets others."""
        self.free += len(list(islice(self.lock_free, tokens)))

    def took_late(self, cost: int) -> None:
        """Uncount tokens that were taken too late to be spent."""
        self._base -= cost

    @property
    def available(self) -> int:
        """What may be spent now by whoever comes."""
        return self.free if self.lock_free is NO_TOKENS else self.free + length_hint(self.lock_free)

    @property
    def here(self) -> int:
        """What may be spent now, by whoever comes or by whoever is in line."""
        return self.available + self.reserved_for_waiters

    @property
    def pending_from(self) -> float:
        """The instant at which what is to come begins; -inf if nothing is."""
        return self._starts if self.pending else -math.inf

    @property
    def held(self) -> int:
        """What is leased and nobody's yet."""
        return self.here + self.pending

    @property
    def leased(self) -> int:
        """What is held of the bucket's."""
        return 0 if self.borrowed else self.held

    @property
    def lease(self) -> float:
        """How long (s) the present lease lasts from its beginning."""
        return self.expires - self._starts

    @property
    def spent(self) -> int:
        """What was admitted up to this moment."""
        return self.admitted + self._base - self.here

    @property
    def uses(self) -> int:
        """A figure that changes with each use of the key; without the lock it may miss a use that happens now."""
        return self.spent + self.refused

    def count_spent(self, now: float) -> int:
        """Return what was spent since the last count. When the lease is over, nothing more is until it is counted."""
        if now >= self.expires:
            self.reclaim()
        here = self.here
        spent, self._base = self._base - here, here
        self.admitted += spent
        return spent

    def advance(self, now: float) -> None:
        """Take in what has begun, and let go of what has expired; after a count, or that would be lost to it."""
        if self.pending and now >= self._starts:
            self._add(self.pending)
            self.pending = 0
        if now >= self.expires:
            self.free = self.reserved_for_waiters = self.pending = self.low_watermark = self._base = 0

    # A signal handler may raise between any two lines here. So tokens leave one place before they enter another, and
    # before anyone hears of them: an interrupt loses some, and mints none.

    def set_aside(self) -> None:
        """Keep everything for whoever is in line."""
        self.reclaim()
        everything = self.free
        self.free = 0
        self.reserved_for_waiters += everything

    def serve(self, line: WaitQueue, debt: Waiter) -> None:
        """Spend on the line, from its API while the tokens last; set the rest free if nobody is left in it.

        A debt is not served but paid.
        """
        if line:
            self.set_aside()
        served = False
        while (
            (first := line.first) is not None
            and first is not debt
            and (first.verdict or first.cost <= self.reserved_for_waiters)
        ):
            verdict = first.verdict or Admit(self.expires, self.generation)  # who served it may have been interrupted
            if first.verdict is None:
                self.reserved_for_waiters -= first.cost
                first.told = self.told
                self._pledged += first.cost if first.tentative else 0
                self.prompt += first.cost if first.prompt else 0
                first.verdict = verdict  # with no call in between: a pledge that nobody knows of would last for ever
            line.dismiss(first, verdict)
            served = True
        if served:
            line.wake_leader()
        if not line:
            everything = self.reserved_for_waiters
            self.reserved_for_waiters = 0
            self.free += everything

    def pay(self, owed: int) -> int:
        """Spend up to `owed` tokens of those set aside on a debt; return how many."""
        paid = min(owed, self.reserved_for_waiters)
        self.reserved_for_waiters -= paid
        return paid

    def held_for_report(self) -> int:
        """Return what the bucket is told that we hold; once that arrives, the rest of the lease is spent."""
        self.told += 1
        self._recorded = 0 if self.borrowed else self.held + self._pledged
        return self._recorded

    def confirm(self, waiter: Waiter) -> None:
        """Let what was given to a tentative waiter be spent, as far as the bucket is concerned."""
        self._pledged = max(0, self._pledged - waiter.cost)
        if waiter.prompt:
            self.prompt = max(0, self.prompt - waiter.cost)

    def credit(self, fetch: Fetch, grant: Grant, now: float) -> None:
        """Take in a grant. If the bucket counts less as ours than we told it, all that we had is gone."""
        self.reclaim()
        if self.borrowed or grant.kept < fetch.ask.held:
            self._base -= self.here
            self.free = self.reserved_for_waiters = self.pending = 0
            self.generation += 1
            self.borrowed = False
        begins = now + grant.starts_in
        self._starts = max(self._starts, begins) if self.pending else begins
        if grant.starts_in > 0.0:
            self.pending += grant.granted
        else:
            self._add(grant.granted)
        self.expires = fetch.sent + grant.starts_in + grant.lease
        self._recorded = grant.kept + grant.granted

    def borrow(self, tokens: int, lease: float, now: float) -> None:
        """Take in what this instance grants itself. What is left of the bucket's lease becomes borrowed as well.

        It keeps its end: nothing that was leased is spent after its lease. What was to come is let go.
        """
        self.reclaim()
        ends = now + lease
        self.pending = self.low_watermark = 0
        self.expires = min(self.expires, ends) if self.leased else ends
        self._foreign = self.leased
        self.generation += not self.borrowed
        self._starts = now
        self._recorded = 0
        self._add(tokens)
        self.borrowed = True

    def pay_back(self) -> int:
        """Let go of what is borrowed; return how much that was, but for what was left of a lease."""
        return max(0, self._let_go() - self._foreign) if self.borrowed else 0

    def unspend(self, cost: int, now: float) -> int:
        """Put back spent tokens as far as the bucket still counts them as leased to us; return how many."""
        room = cost if self.borrowed else max(0, self._recorded - self.held - self._pledged)
        room = room if now < self.expires else 0
        back = min(cost, room)
        self.reserved_for_waiters += back
        return back

    def refund(self, cost: int, now: float) -> int:
        """Put back tokens whose admission stays counted; return how many."""
        back = self.unspend(cost, now)
        self._base += back
        return back

    def remove(self, tokens: int) -> None:
        """Let go of tokens that nobody else can spend just now, unspent."""
        self.free -= tokens
        self._base -= tokens

    def set_low_watermark(self, low: int) -> None:
        """Have fewer tokens than this be few; lay out the others, if they are taken one by one."""
        self.reclaim()
        self.low_watermark = low
        if self._singly:
            self._publish()

    def take_all(self) -> int:
        """Let go of everything, unspent; return how much of it is the bucket's."""
        self.reclaim()  # first: what somebody hits between the two would be given back as well
        leased = self.leased
        self._let_go()
        return leased

    def _let_go(self) -> int:
        self.reclaim()
        tokens, self._base = self.held, self._base - self.here
        self.free = self.reserved_for_waiters = self.pending = self.low_watermark = 0
        return tokens

    def forfeit(self) -> None:
        """Let go of everything for good: what comes back late finds no lease to come back to."""
        self.take_all()
        self.disown()
        self.expires = -math.inf

    def disown(self) -> None:
        """Let nobody spend here any more who comes without a lock, and asks nobody else."""
        self.lock_free, self.denied_until = NO_TOKENS, LONG_AGO

    @property
    def is_pledged(self) -> bool:
        """Whether a waiter that is tentative still was given some."""
        return self._pledged > 0

    def _add(self, tokens: int) -> None:
        self.reserved_for_waiters += tokens
        self._base += tokens
