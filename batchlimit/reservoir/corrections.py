"""What a call has cost, corrected: by a caller who leaves, by a refund, or by a debit beyond an estimate."""

from batchlimit.bucket.messages import GiveBack
from batchlimit.reservoir.admission import QueueAdmission
from batchlimit.reservoir.denial_cache import NO_DENIALS
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.overdraft import NO_OVERDRAFT, Overdraft
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.waiter import Admit, Waiter


class Corrections:
    """Refunds and debits of one key. Each serves the waiters that it concerns, and may have a request to send."""

    __slots__ = ("_admission", "_requests", "_state")

    def __init__(self, state: KeyState, admission: QueueAdmission, requests: Requests) -> None:
        self._state, self._admission, self._requests = state, admission, requests

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
            if is_ours and not is_late and verdict.generation == lease.generation:
                lease.put_back(waiter.cost, now)
            elif is_ours and now < verdict.before and verdict.generation == lease.counted_as_spent:
                self._requests.refunds += waiter.cost
            lease.forsake(waiter, verdict)
        self._admission.serve()

    def debit(self, tokens: int, now: float) -> bool:
        """Charge tokens that were used and not admitted: those here pay for them, in their turn, or later ones.

        Nobody waits for that but the callers who come behind. False: the reservoir has retired.
        """
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
