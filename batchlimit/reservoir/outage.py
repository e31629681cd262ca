"""What becomes of the waiters of one key when the store does not answer."""

from batchlimit.base.waiting import NO_WAIT
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.reservoir.admission import QueueAdmission
from batchlimit.reservoir.denial_cache import DenialCache
from batchlimit.reservoir.fallback import LocalBucket
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Waiter

_AGAIN = 0.05
"""Waiters ask again so long (s) after the request that failed was sent, at the earliest: a store that fails at once,
and at this key only, opens no circuit."""
_OPEN_CIRCUIT = 0.05
"""For so long (s) after a request met an open circuit, callers who need the store are refused from memory."""


class Outage:
    """A request had no answer, and nothing stands in for the store; it is there until the next answer.

    Callers that do not wait fail. Those with time left wait for the next request, until the circuit opens or the error
    says that there is no use in it.
    """

    __slots__ = ("_admission", "_error", "_last", "_state", "_until")

    def __init__(self, state: KeyState, admission: QueueAdmission, fetch: Fetch, error: Exception) -> None:
        self._state, self._admission, self._error = state, admission, error
        self._until = fetch.sent + _AGAIN  # the waiters of this time do not ask again before
        self._last = state.queue.last  # the number of the last of them

    def __repr__(self) -> str:
        return f"<Outage: {self._error!r}>"

    def fail_waiters(self, now: float) -> None:
        """Fail also waiters that no request spoke for: the next one would take as long to fail."""
        state = self._state
        if isinstance(self._error, CircuitOpen):
            state.failing_until = now + _OPEN_CIRCUIT
        for waiter in list(state.queue) if getattr(self._error, "_is_final", False) else state.queue.hasty:
            if waiter is not state.overdraft.waiter:
                self._fail(waiter)

    def time_is_up(self, waiter: Waiter) -> Admit | Fail:
        """Fail a waiter whose deadline has come, and serve those behind it."""
        verdict = self._fail(waiter)
        self._admission.serve()
        self._state.queue.wake_leader()
        return verdict

    def asks_again_in(self, waiter: Waiter, now: float) -> float:
        """Return for how long (s) a waiter does not ask again after a request that failed while it waited."""
        if waiter.deadline == NO_WAIT or waiter.number > self._last:
            return 0.0
        return self._until - now

    def _fail(self, waiter: Waiter) -> Admit | Fail:
        verdict: Admit | Fail | None = self._state.pass_in_shadow(waiter)
        if verdict is None:
            self._state.tokens.refused += waiter.cost
            verdict = self._state.fallback.failure(self._error)
        self._state.queue.dismiss(waiter, verdict)
        return verdict


def fall_back(state: KeyState, admission: QueueAdmission, target: int, now: float) -> bool:
    """Answer the waiters without the store, up to a `target`, or by a pause that goes on; False: no answer."""
    if state.queue.leader is None:
        return True
    admission.advance(now)
    if (pause := state.view.paused_until - now) > 0.0 and not state.fallback.fails_closed:
        state.denials = DenialCache.dry(pause, 1, now)
        admission.refuse_answered(now)
        return True
    bucket = state.fallback.bucket_now(state.quota, state.view, now)
    if bucket is not None and state.queue.leader is not None:
        borrow(state, bucket, target, now)
        admission.advance(now)
        admission.refuse_answered(now)
    return bucket is not None


def borrow(state: KeyState, bucket: LocalBucket, target: int, now: float) -> None:
    """Grant the waiters what they need, and `target` tokens in all if there are as many."""
    state.fallback.pay_back(state.lease, now)
    queued = state.queue.cost - (here := state.lease.held - state.lease.pending)  # what is pending is let go
    wait = state.fallback.lend(bucket, state.first_cost - here, max(queued, target), state.lease, now)
    state.denials = DenialCache.dry(wait, state.first_cost, now)
