"""What happens to one key's tokens beside admission: they are corrected, renewed or go back; it retires or ends."""

import math

from batchlimit.base.waiting import LONG_AGO
from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.grammar import LARGEST_BURST
from batchlimit.reservoir.admission import QueueAdmission
from batchlimit.reservoir.bucket_view import KeySnapshot
from batchlimit.reservoir.denial_cache import NO_DENIALS, DenialCache
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.overdraft import NO_OVERDRAFT, Overdraft
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Waiter

_AWAKE = 1.0
"""For so long (s) after its last use a key stays awake: a busy one is not to rest and to wake at its every ask."""


class Lifecycle:
    """Looks after the tokens while nobody calls, and retires the reservoir: then another one stands for the key.

    - `refund`, `undo` and `debit`: what a call has cost is corrected. Each serves the waiters that it concerns.
    - `tend`, at `due`: tokens are renewed, refilled or returned. If nobody used the empty reservoir for a while, it
      retires. It leaves a `snapshot` for the next one, unless the key is idle by then.
    - `pause`: nobody is admitted for a time, and its tokens go back. `resume` ends that.
    - `evict`: it has to make room for another key.
    - `close`, then `last_ask` and `drain`: the limiter is closed. `ended` is the error that every later caller gets.

    It has 11 public methods: each is one event at a key, and may have a request to send.
    """

    __slots__ = (
        "_admission", "_idle_after", "_requests", "_state", "closer", "ended", "snapshot", "stays_awake",
    )  # fmt: skip

    def __init__(self, state: KeyState, admission: QueueAdmission, requests: Requests, idle_after: float) -> None:
        """`idle_after`: the key is forgotten so many seconds after its last use."""
        self._state, self._admission, self._requests = state, admission, requests
        self._idle_after, self.stays_awake = idle_after, min(_AWAKE, idle_after)  # seconds after its last use
        self.closer: Waiter | None = None  # to be woken whenever a request has ended
        self.ended: Exception | None = None
        self.snapshot: KeySnapshot | None = None

    def refund(self, waiter: Waiter, now: float) -> GiveBack | None:
        """Take back the spent tokens of a waiter that was admitted.

        The store counts all tokens of this lease as ours until we report them spent, so within the lease a refund
        needs no request. More than that goes to the store, now or when it can. So does all of a grant that the store
        may count as spent: it would take nothing back with the next report.
        """
        state = self._state
        self._admission.advance(now)
        if state.denies_all or waiter.cost == 0:
            return None  # nothing was ever admitted, or nothing comes back
        cost = waiter.cost - state.fallback.absorb(waiter.cost, state.lease, now)
        margin = 0.0 if state.lease.borrowed else 2 * state.view.round_trip  # until a renewal is answered
        stays = state.lease.borrowed or not state.lease.may_count_as_spent
        self._requests.refunds += cost - (state.lease.put_back(cost, now, margin) if stays else 0)
        state.denials = NO_DENIALS
        self._admission.serve()
        state.queue.wake_leader()
        return self._requests.repay(waiter)

    def undo(self, waiter: Waiter, now: float) -> None:
        """Take back the tokens of a caller that leaves, whatever its verdict.

        They come back here, unless they have expired, or a request has reported them as spent since. Requests report
        the tokens of a tentative waiter as unspent, so these come back as long as the lease is renewed.
        """
        state, lease, verdict = self._state, self._state.lease, waiter.verdict
        is_ours = waiter.tentative or waiter.reports == lease.reports
        self._admission.confirm(waiter)
        waiter.verdict = None  # first: its tokens are returned once, also where this is interrupted and done again
        if isinstance(verdict, Admit) and verdict.is_shadow:
            state.count_in_shadow(-waiter.cost)
        elif isinstance(verdict, Admit) and waiter.cost:
            is_late = lease.borrowed and now >= verdict.before  # what is borrowed is never renewed
            back, is_spent = 0, verdict.generation in lease.counted_as_spent
            if is_ours and not is_late and verdict.generation == lease.generation:
                back, is_spent = lease.put_back(waiter.cost, now), lease.may_count_as_spent
            if is_ours and is_spent and now < verdict.before:
                self._requests.refunds += waiter.cost - back
            lease.forsake(waiter, verdict)
        self._admission.serve()

    def debit(self, tokens: int, now: float) -> bool:
        """Charge tokens that were used and not admitted, in their turn. False: the reservoir has retired."""
        state = self._state
        if state.is_retired:
            return False
        self._admission.advance(now)
        if state.denies_all:
            return True
        if state.overdraft is NO_OVERDRAFT:
            state.overdraft = Overdraft()
        state.overdraft.waiter.beyond += tokens
        state.overdraft.line_up(state.queue, state.largest_cost)
        self._admission.serve()
        return True

    def due(self) -> float:
        """Return the instant at which `tend` has something to do, if nothing happens before; inf: never."""
        state, silent_until = self._state, self._requests.silent_until
        if state.is_retired or state.in_flight is not None:
            return math.inf
        if self._requests.refunds:
            return silent_until
        if state.queue.leader:  # who looks after all else
            return max(self._nears_end_at(), silent_until) if state.lease.leased else math.inf
        if state.queue:
            return math.inf if state.denies_all else max(silent_until, state.denials.until(1), state.pending_from)
        if self._requests.wants_refill:
            return silent_until
        if state.lease.held == 0:
            return self._retires_at()
        if state.lease.borrowed:
            return state.tokens.expires
        if state.is_outdated:
            return silent_until
        return max(min(self._nears_end_at(), self._requests.checks_at), silent_until)

    def tend(self, now: float) -> Fetch | GiveBack | None:
        """Return the request to send when no caller is here, if any.

        Tokens in use are renewed before they are few or expire. Tokens that nobody used go back, and so do those that
        are too few for who waits. A reservoir that was empty and unused for a while retires.
        """
        state, requests = self._state, self._requests
        self._admission.advance(now)
        state.count(now)  # whom the advance has served
        self._requests.check_watermark(now)
        if state.lease.pledged:
            state.used = now  # by somebody who was served, and has not looked yet
        if self.due() > now:
            return None
        if requests.refunds:
            return requests.repay()
        if state.lease.leased and (state.mode == "open" or state.queue.leader):
            return self.drain()
        if state.queue.first is not None or self._requests.wants_refill:
            return requests.ask(now, state.queue.first)
        if state.lease.held == 0:
            snapshot = None
            if now < state.used + self._idle_after:  # later nothing of it is to be known
                known = min(requests.last_target, LARGEST_BURST), *state.view.known()
                snapshot = KeySnapshot(state.used, state.demand.rate, state.demand.at, *known)
            state.is_retired, self.snapshot = True, snapshot
            return None
        return self.drain() if state.is_untouched else requests.renew(now)

    def _nears_end_at(self) -> float:
        """Return when what is leased is to be renewed or to go back."""
        expires = self._state.tokens.expires
        return expires - max(2 * self._state.view.round_trip, 0.1 * (expires - self._state.lease.starts))

    def _retires_at(self) -> float:
        """Return when an empty reservoir retires: soon if a snapshot says all that is to be kept, else when idle."""
        state = self._state
        if state.lease.pledged:
            return state.used + _AWAKE  # a waiter that was served comes back here, should it come too late
        idle = state.used + self._idle_after
        if state.trial is not None:
            return max(idle, state.trial.full_at(state.view.active_instances))
        if state.fallback.bucket is not None:
            return max(idle, state.fallback.bucket.full_at())
        if state.fallback.unrefunded or self._requests.lost_number is not None or state.quota != state.own:
            return idle
        return min(idle, max(state.used + _AWAKE, state.tokens.expires, state.denials.dry_until))

    def evict(self) -> bool:
        """Retire to make room; False while somebody waits or is served, a request is in flight, or a refund is owed.

        The tokens here expire at the store, or count as spent when this instance asks for the key again. To give them
        back would double the calls of the store for somebody who invents keys.
        """
        state = self._state
        if state.queue or state.in_flight is not None or self._requests.refunds or state.lease.pledged:
            return False
        state.lease.take_all()
        state.tokens.disown()
        state.is_retired = True
        return True

    def close(self, error: Exception, closer: Waiter) -> bool:
        """Fail every waiter, and retire; return whether a request is in flight, whose end wakes the closer."""
        state = self._state
        state.is_retired, self.ended = True, error
        for waiter in state.queue:
            if waiter is not state.overdraft.waiter:
                state.queue.dismiss(waiter, Fail(error))
        self.closer = closer
        return state.in_flight is not None

    def last_ask(self, now: float) -> Fetch | None:
        """Ask once more before the end: for what is owed, or for the tokens of an answer that was lost.

        The sizer is not asked, for nobody comes any more. `drain` forgives the debt that the bucket cannot pay now.
        """
        self._admission.advance(now)
        if self._state.in_flight is not None:
            return None
        if self._state.overdraft.total == 0 and self._requests.lost_number is None:
            return None
        return self._requests.ask(now, target=0, ahead=0.0)

    def drain(self, waiter: Waiter | None = None) -> GiveBack | None:
        """Give back all free tokens, by this caller; None if there are none, or while a request is in flight."""
        state = self._state
        if state.in_flight is not None:
            return None
        if self.ended is not None:
            state.queue.withdraw(state.overdraft.waiter)
            state.overdraft.forget()
        held = state.lease.take_all()
        tokens = 0 if state.lease.borrowed else held
        return self._requests.give_back(tokens, waiter) if tokens or self._requests.refunds else None

    def pause(self, seconds: float, now: float, waiter: Waiter) -> GiveBack | None:
        """Have nobody admitted for so long; return what goes back, which this caller sends."""
        state = self._state
        if state.denies_all:
            return None
        state.count(now)
        back = self.drain(waiter)
        self._requests.lost_number = None  # the tokens of that ask were granted before
        state.lease.take_all()
        state.lease.void_before = now
        self._requests.stop()
        state.view.pause(seconds, state.quota, now)
        state.denials = DenialCache.dry(seconds, 1, now)
        self._admission.refuse_hopeless(now)
        state.queue.wake_leader()
        return back

    def resume(self) -> None:
        """Ask the bucket again, which is paused no more."""
        if not self._state.denies_all:
            self._state.view.resume()
            self._state.lease.void_before = LONG_AGO
            self._state.denials = NO_DENIALS
            self._state.queue.wake_leader()
