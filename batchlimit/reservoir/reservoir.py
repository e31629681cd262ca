"""What this process has leased of one bucket, and what to ask for when it runs dry."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.grammar import LARGEST_BURST
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import Fill, InstanceCount
from batchlimit.reservoir.debt import NO_OVERDRAFT, Overdraft
from batchlimit.reservoir.dormant import KeySnapshot
from batchlimit.reservoir.failure_policy import CLOSED, CircuitOpen, FailurePolicy
from batchlimit.reservoir.local_bucket import LEASE, Wish
from batchlimit.reservoir.prefetch import first_look, low_mark, next_look
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.sizing import DEFAULT_SIZER, BatchSizer, Demand
from batchlimit.reservoir.statistics import KeyStatistics
from batchlimit.reservoir.waiter import RETIRED, Admit, Fail, Fetch, Verdict, Wait, Waiter
from batchlimit.waiting import NO_WAIT

_REST = 0.1
"""After a failure nothing is asked in the background for this long (s); a caller who comes still asks at once."""
_LONG_REST = 1.0
"""The same while the store is given up: a thousand keys with refunds must not keep an instance busy in vain."""
_AGAIN = 0.05
"""Who waits asks again so long (s) after the ask that failed was sent, at the earliest: a store that fails at once, and
at this key only, is never given up."""
_SHUT = 0.05
"""For so long (s) refuses from memory, without a lock, what could be asked for only at a store that is given up."""
_AWAKE = 1.0
"""For so long (s) after its last use a key stays awake: a busy one is not to rest and to wake at its every ask."""


class Silence(NamedTuple):
    """An ask that had no answer."""

    error: Exception
    until: float
    """The instant before which those do not ask again who were in line."""
    last: int
    """The number of the last of them."""


class Reservoir(Requests):
    """One key's leased tokens, and the rules by which more are asked for: when, how many, and what becomes of them.

    No method blocks, reads a clock or talks to a store, and all but `denies` want the API's lock held. An API
    spends with `stock.take`; when that fails it puts a Waiter in line and calls `step` until it has a verdict, doing
    what it is told: Wait, or Fetch and report. After every call it wakes whom `to_wake` names.
    """

    __slots__ = "_ended", "_idle_after", "_is_told", "_rest_until", "_silence", "snapshot"

    def __init__(
        self,
        quota: Quota,
        instance: str,
        seqs: Iterator[int],
        now: float,
        *,
        sizer: BatchSizer = DEFAULT_SIZER,
        fill: Fill = "share",
        idle_after: float = 10.0,
        born: float | None = None,
        weight: int = 1,
        policy: FailurePolicy = CLOSED,
        instance_count: InstanceCount | None = None,
        snapshot: KeySnapshot | None = None,
    ) -> None:
        """`born` is when the quota was set, by the instance's clock: now, unless told. `census` is of all its keys.

        `snapshot` is what the key's last reservoir left.
        """
        super().__init__(
            quota,
            instance,
            seqs,
            now,
            sizer=sizer,
            fill=fill,
            born=now if born is None else born,
            weight=weight,
            policy=policy,
            instance_count=instance_count or InstanceCount(),
        )
        self._idle_after = idle_after
        self._rest_until = -math.inf
        self._ended: Exception | None = None
        self._silence: Silence | None = None  # until the next answer, where callers wait for it
        self._is_told = False  # the bucket told of a quota that is not the one of our own
        self.snapshot: KeySnapshot | None = (
            None  # for the key's next reservoir, when this one has retired to let the key rest
        )
        if snapshot is not None:
            self._restore(snapshot)

    def take_low(self, cost: int) -> float:
        """Spend some of the last tokens, and have more fetched in the background: as `Stock.take`, after it had none.

        The one of each lease who comes upon the low mark is to notice nothing: by way of the line this took 200 us,
        every rule being cold after a thousand hits.
        """
        if not self.tokens.low_watermark or cost > self.tokens.available or self._queue or self._in_flight is not None:
            return NO_WAIT
        self.tokens.low_watermark, self.wants_refill = 0, True
        return self.tokens.take(cost)

    def step(self, waiter: Waiter, now: float) -> Verdict | Wait | Fetch:
        """Say what the caller with this waiter does next."""
        self._advance(now)
        if isinstance(waiter.verdict, Admit) and now >= waiter.verdict.before:
            self._come_late(waiter)
        if self._ended is not None and waiter.verdict is None:
            self._queue.dismiss(waiter, Fail(self._ended))
        if waiter.verdict is not None:
            self._queue.withdraw(waiter)
            return waiter.verdict
        if NO_WAIT < waiter.deadline <= now:
            return self._time_is_up(waiter, now)
        if self._in_flight is not None or self.is_held_up:
            return Wait(_within(math.inf, waiter.deadline, now))
        if (rest := self._rest_of(waiter, now)) > 0.0:
            return Wait(_within(rest if waiter is self._queue.leader else math.inf, waiter.deadline, now))
        if (pause := self._pause(waiter, now)) == 0.0:
            return self._ask(now, waiter)
        if self._is_hopeless(waiter, now):
            return self._turn_away(waiter, now)
        if waiter is not self._queue.leader:
            return Wait(_within(math.inf, waiter.deadline, now))
        self._dismiss_hopeless(now)  # who came while something was under way, and hears of nothing else till then
        return Wait(_within(pause, waiter.deadline, now))

    def leave(self, waiter: Waiter, now: float) -> None:
        """Take a caller out of line whatever its verdict, and wherever it was interrupted.

        Tokens that it was given stay here for others, unless they have expired, or the bucket was told meanwhile that
        they are spent: then it no longer counts them ours, and to send them back would be to mint what flowed in for
        them. It is not told so of a tentative waiter's. A request that the caller has not reported on has failed.
        """
        if self._in_flight is not None and waiter.request is self._in_flight:
            self._give_up(waiter.request, now)
        self._queue.withdraw(waiter)
        is_ours = waiter.tentative or waiter.told == self.tokens.told
        self.confirm(waiter)
        if isinstance(waiter.verdict, Admit) and waiter.cost:
            is_leased = is_ours and now < waiter.verdict.before and waiter.verdict.generation == self.tokens.generation
            back = self.tokens.unspend(waiter.cost, now) if is_leased else 0
            self.tokens.took_late(waiter.cost - back)
        waiter.verdict = None  # what it was given is returned once
        self._serve()

    # Talking to the store

    def granted(self, fetch: Fetch, grant: Grant, now: float, jitter: float) -> None:
        """Take in the answer to `fetch`; `jitter` is a random factor of about 1."""
        if self._in_flight is not fetch:
            return  # its caller was interrupted: the next ask repeats the number, and gets the same tokens
        self._count(now)
        self._in_flight = self._lost_seq = self._silence = None
        self._view.learn(fetch, grant, now)
        self._fallback.end(self.tokens, now)
        if grant.quota is not None:
            self._obey(grant.quota)
            self._is_told = True
        self._denials.learn(fetch, grant, self.quota, self._demand.rate, now, jitter)
        self.tokens.credit(fetch, grant, now)
        self._untouched = True
        self._advance(now)
        for waiter in self._queue.hasty:  # each refusal may let others be served
            if waiter.verdict is None and self._is_answered(waiter, fetch, grant):
                self._refuse(waiter, now)
        self._dismiss_hopeless(now)
        self._count(now)  # who was served just now used the key now, and not when somebody looks at it next
        self._set_watermark(now)
        self._wake_next()

    def failed(self, fetch: Fetch, error: Exception | None, now: float) -> None:
        """Take note that `fetch` had no answer; None: its thread was interrupted, and another is to ask again.

        The ask may have been carried out all the same, so the next one repeats its number and gets the same tokens.
        """
        if self._in_flight is not fetch:
            return  # it was reported before
        self._in_flight = None
        self._rest_until = now + _REST
        if isinstance(error, CircuitOpen):
            self._unsent(now)
        else:
            self._lost_seq = fetch.ask.seq
        for waiter in self._queue.hasty:
            waiter.asked = 0
        if error is not None and not self._fall_back(now):
            self._silence = Silence(error, fetch.sent + _AGAIN, self._queue.last)
            self._fail(error, now)
        self._serve()
        self._wake_next()

    def _give_up(self, request: Fetch | GiveBack, now: float) -> None:
        if isinstance(request, Fetch):
            self.failed(request, None, now)
        else:
            self.gave_back(now)

    def gave_back(self, now: float, unsent: GiveBack | None = None) -> None:
        """Take note that a give-back is over, whether it arrived or not; it is never repeated, unless it was not sent.

        Then what it had of refunds is for the next one; leased tokens expire.
        """
        self._in_flight = None
        if unsent is not None:
            self._unsent(now)
            self._refunds += unsent.refund
        self._advance(now)
        self._wake_next()

    def due(self) -> float:
        """Return the instant at which `tend` has something to do, if nothing happens before; inf: never."""
        if self.is_retired or self._in_flight is not None:
            return math.inf
        if self._refunds:
            return self._rest_until
        if self._queue:
            return self._collects_at()
        if self.wants_refill:
            return self._rest_until
        if self.tokens.held == 0:
            return self._leaves_at()
        if self.tokens.borrowed:
            return self.tokens.expires
        margin = max(2 * self._view.round_trip, 0.1 * self.tokens.lease)
        return max(min(self.tokens.expires - margin, self._checks_at), self._rest_until)

    def tend(self, now: float) -> Fetch | GiveBack | None:
        """Say what there is to do when no caller is here, if anything.

        Tokens in use are renewed before they expire; tokens nobody used go back; a reservoir that was empty and
        unused for a while retires, and an API must not use it any more. If it leaves a snapshot the key is at rest.
        """
        self._advance(now)
        self._count(now)  # whom the advance has served
        self._check_watermark(now)
        if self.tokens.is_pledged:
            self._used = now  # by somebody who was served, and has not looked yet
        if self.due() > now:
            return None
        if self._refunds:
            return self._repay()
        if self._queue.first is not None:
            return self._ask(now, self._queue.first)
        if self.wants_refill:
            return self._ask(now)
        if self.tokens.held == 0:
            self.is_retired, self.snapshot = True, self._snapshot(now)
            return None
        return self.drain() if self._untouched else self._renew(now)

    @property
    def under_way(self) -> Fetch | GiveBack | None:
        """What was sent to the store, or is to be, and was not reported on."""
        return self._in_flight

    # What ends, and what comes back

    def evict(self) -> bool:
        """Retire to make room; False where somebody is in line or being served, something under way, or owed.

        What is held here expires at the store, or is taken for spent when this instance asks for the key again. To give
        it back would be a call of the store for each key that leaves: whoever invents keys would cost two instead of
        one.
        """
        if self._queue or self._in_flight is not None or self._refunds or self.tokens.is_pledged:
            return False
        self.tokens.forfeit()
        self.is_retired = True
        return True

    def close(self, error: Exception, closer: Waiter) -> bool:
        """Fail whoever is in line, and retire; to be followed by `drain`.

        True: something is under way, and the closer is woken when that has ended, so that it can drain the rest too.
        """
        self.is_retired, self._ended = True, error
        for waiter in self._queue:
            if waiter is not self._overdraft.waiter:
                self._queue.dismiss(waiter, Fail(error))
        self._closer = closer
        return self._in_flight is not None

    def last_ask(self, now: float) -> Fetch | None:
        """Ask once more before all ends: for what is owed, and after an answer that was lost, and its tokens with it.

        What is owed and not in the bucket now is forgiven by `drain`. No sizer is asked: nobody comes any more.
        """
        self._advance(now)
        if self._in_flight is not None or (self._overdraft.total == 0 and self._lost_seq is None):
            return None
        return self._ask_for(now, 0, ahead=0.0)

    def drain(self) -> GiveBack | None:
        """Let go of all free tokens; None when there are none, or while something else is under way."""
        if self._in_flight is not None:
            return None
        if self._ended is not None:
            self._queue.withdraw(self._overdraft.waiter)
            self._overdraft.forget()
        tokens = self.tokens.take_all()
        return self._return(tokens) if tokens or self._refunds else None

    def refund(self, waiter: Waiter, now: float) -> GiveBack | None:
        """Take back the spent tokens of a waiter that was admitted.

        What exceeds the lease they came from goes to the store, now or when it can.

        The store still counts all of this lease as ours until we report it spent, so within it a refund is free.
        """
        self._advance(now)
        if self.quota.denies_all:
            return None  # nothing was ever admitted
        cost = waiter.cost - self._fallback.absorb(waiter.cost, self.tokens, now)
        self._refunds += cost - self.tokens.refund(cost, now)
        self._denials.forget()
        self._serve()
        self._queue.wake_leader()
        return self._repay(waiter)

    def debit(self, tokens: int, now: float) -> None:
        """Charge tokens that were used and not admitted.

        What is here pays for them, in their turn, or what comes next: nobody waits for that but who comes behind.
        """
        self._advance(now)
        if self.quota.denies_all or self._ended is not None:
            return
        if self._overdraft is NO_OVERDRAFT:
            self._overdraft = Overdraft()
        self._overdraft.waiter.beyond += tokens
        self._overdraft.line_up(self._queue, self.largest_cost)
        self._serve()

    def figures(self) -> KeyStatistics:
        """Return what happened up to this moment."""
        waiting = len(self._queue) - (self._overdraft.waiter in self._queue)
        spent, held = self.tokens.spent, self.tokens.held
        unbacked = self._fallback.admitted + (spent - self.tokens.admitted if self.tokens.borrowed else 0)
        done = (spent, self.refused, self.calls, unbacked, self._view.losses)
        return KeyStatistics(*done, held=held, waiting=waiting, owed=self._overdraft.total)

    # The rules within

    def _come_late(self, waiter: Waiter) -> None:
        """Put a caller back in its place whose tokens expired before it woke, if this is where its key is served still.

        An ask from here too would be the same instance's to the bucket as one from the next reservoir, and mint tokens.
        """
        if self.is_retired and self._ended is None:
            waiter.verdict = RETIRED
        else:
            self._rejoin(waiter)

    def _fall_back(self, now: float) -> bool:
        """Answer those in line without the store, as the policy says; False where it has no answer."""
        if self._queue.leader is None:
            return True
        self._advance(now)
        fallback = self._fallback.bucket_now(self.quota, self._view, now)
        if fallback is None or self._queue.leader is None:
            return fallback is not None
        self._fallback.pay_back(self.tokens, now)
        first, queued = self._first_cost() - self.tokens.held, self._queue.cost - self.tokens.held
        more = max(0, self._last_target - queued)
        tokens, wait = fallback.grant(Wish(max(1, first), max(1, queued), more), now)
        self.tokens.borrow(tokens, LEASE, now)
        self._denials.pause_for(wait, self._first_cost(), now)
        self._advance(now)
        for waiter in self._queue.hasty:  # each refusal may let others be served
            if waiter.verdict is None:
                self._refuse(waiter, now)
        self._dismiss_hopeless(now)
        return True

    def _fail(self, error: Exception, now: float) -> None:
        """Tell those in line who do not wait, those too whom no ask spoke for: the next one would take as long to fail.

        Who has time left waits for the next ask, until the store is given up, or says that there is no use in it.
        """
        if isinstance(error, CircuitOpen):
            self._failing_until = now + _SHUT
        for waiter in list(self._queue) if isinstance(error, CircuitOpen | BucketUnavailable) else self._queue.hasty:
            if waiter is not self._overdraft.waiter:
                self._tell(waiter, error)

    def _tell(self, waiter: Waiter, error: Exception) -> Verdict:
        self.refused += waiter.cost
        verdict = self.failure(error)
        self._queue.dismiss(waiter, verdict)
        return verdict

    def _time_is_up(self, waiter: Waiter, now: float) -> Verdict:
        """Refuse one who cannot wait any longer; or say that the store was silent, if it was."""
        if self._silence is None:
            return self._turn_away(waiter, now)
        verdict = self._tell(waiter, self._silence.error)
        self._serve()
        self._queue.wake_leader()
        return verdict

    def _rest_of(self, waiter: Waiter, now: float) -> float:
        """Return for how long (s) a caller rests that has time, after an ask that failed while it was in line."""
        silence = self._silence
        if silence is None or waiter.deadline == NO_WAIT or waiter.number > silence.last:
            return 0.0
        return silence.until - now

    def _unsent(self, now: float) -> None:
        """Nothing went to the store, and nothing does in the background for a while: it is given up."""
        self.calls -= 1
        self._rest_until = now + _LONG_REST

    def _is_answered(self, waiter: Waiter, fetch: Fetch, grant: Grant) -> bool:
        """Whether an answer is all that this caller waits for: the bucket was short.

        The answer to a repeated ask is about an older question; and a grant that came too late to be spent says
        nothing about the bucket, so the caller may ask once more.
        """
        short = grant.granted < fetch.ask.queued
        return not fetch.repeated and waiter.asked >= (1 if short else 2)

    def _leaves_at(self) -> float:
        """Return when an empty reservoir retires: soon, if a snapshot is all that is to be kept, or when it is idle."""
        if self.tokens.is_pledged:
            return self._used + _AWAKE  # whom it was given comes back here, should it come too late
        idle = self._used + self._idle_after
        if self._fallback.bucket is not None:
            return max(idle, self._fallback.bucket.full_at())
        if self._fallback.is_owed or self._lost_seq is not None or self._is_told:
            return idle
        return min(idle, max(self._used + _AWAKE, self.tokens.expires, self._denials.dry_until))

    def _collects_at(self) -> float:
        """Return when to ask for what is owed; inf where a caller is in line: its leader looks after that too."""
        if self._queue.leader is not None:
            return math.inf
        return max(self._rest_until, self._denials.until(1), self._comes_at())

    def _snapshot(self, now: float) -> KeySnapshot | None:
        """Return what is to be known when the key is asked for again; None where that is nothing any more."""
        if now >= self._used + self._idle_after:
            return None
        last_want = min(self._last_target, LARGEST_BURST)
        return KeySnapshot(self._used, self._demand.rate, self._demand.at, last_want, *self._view.known())

    def _restore(self, snapshot: KeySnapshot) -> None:
        self._demand = Demand(snapshot.counted_at, snapshot.demand)
        self._last_target = int(snapshot.last_want)
        self._view.recall(snapshot)

    def _set_watermark(self, now: float) -> None:
        """Set with how few tokens more are fetched in the background, and when to look how many are left."""
        demand, tokens = self._demand.rate, self.tokens.available
        low = 0 if self._denials.pause(1, now) else low_mark(tokens, demand, self._view.round_trip)
        self.tokens.set_low_watermark(low)
        self._checks_at = now + first_look(tokens, low, demand) if low else math.inf

    def _check_watermark(self, now: float) -> None:
        """Be hungry just before a caller would come upon the low mark, or look again later."""
        if not self.tokens.low_watermark:
            self._checks_at = math.inf  # what was looked after has gone: expired, given back, or somebody came upon it
        elif now >= self._checks_at:
            seconds = next_look(self.tokens.available - self.tokens.low_watermark, self._demand.rate)
            self._checks_at = now + seconds
            self.wants_refill = self.wants_refill or seconds == 0.0


def _within(seconds: float, deadline: float, now: float) -> float | None:
    """Return `seconds`, but no longer than a waiting caller's deadline; None for as long as it takes."""
    if deadline != NO_WAIT:
        seconds = min(seconds, deadline - now)
    return None if seconds == math.inf else seconds
