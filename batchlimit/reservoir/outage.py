"""What becomes of the waiters of one key when the store does not answer."""

from typing import NamedTuple

from batchlimit.errors import BucketUnavailable
from batchlimit.reservoir.admission import Admission
from batchlimit.reservoir.failure_policy import CircuitOpen
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.local_bucket import LEASE, FallbackBucket, Wish
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.waiter import Fail, Fetch, Waiter
from batchlimit.waiting import NO_WAIT

_AGAIN = 0.05
"""Waiters ask again so long (s) after the request that failed was sent, at the earliest: a store that fails at once,
and at this key only, opens no circuit."""
_OPEN_CIRCUIT = 0.05
"""For so long (s) after a request met an open circuit, callers who need the store are refused from memory."""


class Silence(NamedTuple):
    """A request that had no answer."""

    error: Exception
    until: float
    """The instant before which the waiters of that time do not ask again."""
    last: int
    """The number of the last of them."""


class Outage:
    """Answers the waiters by the fallback, if the policy has one.

    Otherwise callers that do not wait fail. Those with time left wait for the next request, until the circuit opens or
    the error says that there is no use in it.
    """

    __slots__ = ("_admission", "_requests", "_state", "silence")

    def __init__(self, state: KeyState, admission: Admission, requests: Requests) -> None:
        self._state, self._admission, self._requests = state, admission, requests
        self.silence: Silence | None = None  # until the next answer

    def __repr__(self) -> str:
        return f"<Outage: {self.silence}>"

    def begin(self, fetch: Fetch, error: Exception, now: float) -> None:
        """Answer the waiters after this request failed."""
        if not self._fall_back(now):
            self.silence = Silence(error, fetch.sent + _AGAIN, self._state.queue.last)
            self._fail(error, now)

    def fail(self, waiter: Waiter, error: Exception) -> Fail:
        """Fail one waiter."""
        self._state.tokens.refused += waiter.cost
        verdict = self._state.fallback.failure(error)
        self._state.queue.dismiss(waiter, verdict)
        return verdict

    def rests_for(self, waiter: Waiter, now: float) -> float:
        """Return for how long (s) a waiter does not ask again after a request that failed while it waited."""
        silence = self.silence
        if silence is None or waiter.deadline == NO_WAIT or waiter.number > silence.last:
            return 0.0
        return silence.until - now

    def _fall_back(self, now: float) -> bool:
        """Answer the waiters without the store, as the policy says; False: it has no answer."""
        state = self._state
        if state.queue.leader is None:
            return True
        self._admission.advance(now)
        bucket = state.fallback.bucket_now(state.quota, state.view, now)
        if bucket is not None and state.queue.leader is not None:
            self._borrow(bucket, now)
            self._admission.advance(now)
            self._admission.refuse_answered(now)
        return bucket is not None

    def _borrow(self, bucket: FallbackBucket, now: float) -> None:
        state, tokens = self._state, self._state.tokens
        state.fallback.pay_back(tokens, now)
        first, queued = state.first_cost - tokens.held, state.queue.cost - tokens.held
        more = max(0, self._requests.last_target - queued)
        granted, wait = bucket.grant(Wish(max(1, first), max(1, queued), more), now)
        tokens.borrow(granted, LEASE, now)
        state.denials.pause_for(wait, state.first_cost, now)

    def _fail(self, error: Exception, now: float) -> None:
        """Fail also waiters that no request spoke for: the next one would take as long to fail."""
        state = self._state
        if isinstance(error, CircuitOpen):
            state.failing_until = now + _OPEN_CIRCUIT
        is_final = isinstance(error, CircuitOpen | BucketUnavailable)
        for waiter in list(state.queue) if is_final else state.queue.hasty:
            if waiter is not state.overdraft.waiter:
                self.fail(waiter, error)
