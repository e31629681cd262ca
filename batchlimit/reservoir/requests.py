"""What goes to the store for one key: asks and give-backs, one at a time, each with a number of its own."""

import math
from collections.abc import Iterator

from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.admission import Admission
from batchlimit.reservoir.bucket_view import Fill, InstanceCount
from batchlimit.reservoir.failure_policy import FailurePolicy
from batchlimit.reservoir.sizing import BatchSizer, Usage, wanted
from batchlimit.reservoir.waiter import Fetch, Waiter

AHEAD = 1.0
"""How far in the future (s) a waiting caller's grant may begin, at the most: what bounds the debt of the bucket."""

_ROUNDING = 1.5e-6
"""The bucket's waits are rounded up, by a microsecond or two."""


def furthest(quota: Quota) -> float:
    """Return how far in the future (s) a waiting caller's grant may begin: as far as the bucket takes to fill.

    What begins later keeps the bucket from filling meanwhile, for all: of four instances at a burst of 1 each waited
    for its own share by such a grant, and 49 % of the rate were used.
    """
    fills_in = min(each.burst / each.rate for each in quota.bandwidths) if quota.also else quota.burst / quota.rate
    return fills_in + _ROUNDING if fills_in <= AHEAD else AHEAD


class Requests(Admission):
    """A Admission that writes what is to be sent; when, and what becomes of an answer, is the Reservoir's affair.

    While something is under way nothing else is begun: the bucket knows an instance by the last number that it had.
    """

    __slots__ = (
        "_born",
        "_checks_at",
        "_closer",
        "_in_flight",
        "_instance",
        "_last_target",
        "_lost_seq",
        "_refunds",
        "_seqs",
        "_sizer",
        "_weight",
        "calls",
    )  # fmt: skip

    def __init__(
        self,
        quota: Quota,
        instance: str,
        seqs: Iterator[int],
        now: float,
        *,
        sizer: BatchSizer,
        fill: Fill,
        born: float,
        weight: int,
        policy: FailurePolicy,
        instance_count: InstanceCount,
    ) -> None:
        """See Reservoir."""
        super().__init__(quota, policy, fill, instance_count, now)
        self._instance, self._seqs, self._born, self._sizer, self._weight = instance, seqs, born, sizer, weight
        self.calls = 0
        self._refunds = self._last_target = 0
        self._lost_seq: int | None = None  # of an ask that had no answer: the next one repeats it
        self._in_flight: Fetch | GiveBack | None = None
        self._closer: Waiter | None = None
        self._checks_at = math.inf  # whether callers are about to come upon the low mark

    def _ask(self, now: float, waiter: Waiter | None = None, back: int = 0) -> Fetch:
        return self._ask_for(now, self._target(self.tokens.leased), waiter, back)

    def _ask_for(
        self, now: float, target: int, waiter: Waiter | None = None, back: int = 0, ahead: float = math.inf
    ) -> Fetch:
        """Ask for those in line, and for so many tokens as make `target` with those that are here."""
        first, needed, pool = self._queue.first, self._first_cost(), self.tokens.leased
        queued = max(0, self._queue.cost - pool)
        want = max(queued, target - pool, 0)
        for each in self._queue.hasty:
            each.asked += 1
        max_wait = max(0.0, min(ahead, furthest(self.quota), first.deadline - now)) if first else 0.0
        return self._send(now, waiter, needed, (max(0, needed - pool), queued, want), back, max_wait)

    def _send(
        self, now: float, waiter: Waiter | None, needed: int, tokens: tuple[int, int, int], back: int, max_wait: float
    ) -> Fetch:
        """Begin an ask for so many tokens: what it needs, what is queued, and what it wants."""
        need, queued, self._last_target = tokens
        view, held, age = self._view, self.tokens.held_for_report(), max(0.0, now - self._born)
        seq = next(self._seqs) if self._lost_seq is None else self._lost_seq
        known = view.epoch(self.quota, now), view.fill, view.round_trip
        ask = Ask(self._instance, seq, need, queued, self._last_target, held, back, max_wait, age, *known, self._weight)
        self.wants_refill, self.tokens.low_watermark, self._checks_at = False, 0, math.inf
        self.calls += 1
        fetch = Fetch(ask, self.quota, now, needed, self._lost_seq is not None)
        self._begin(fetch, waiter)
        return fetch

    def _renew(self, now: float) -> Fetch:
        """Ask again before the lease ends, and return what the present demand will not use up."""
        self.tokens.reclaim()
        back = max(0, self.tokens.free - self._target(self.tokens.free))
        self.tokens.remove(back)
        return self._ask(now, back=back)

    def _target(self, left: int) -> int:
        rich = self._view.is_rich(self.quota)
        return wanted(self._sizer, Usage(self.quota, self._demand.rate, self._last_target, left, rich))

    def _repay(self, waiter: Waiter | None = None) -> GiveBack | None:
        return self._return(0, waiter) if self._refunds and self._in_flight is None else None

    def _return(self, tokens: int, waiter: Waiter | None = None) -> GiveBack:
        """Send tokens back, and refunds with them. A lost ask is not repeated after this: its number is too old."""
        self.calls += 1
        back = GiveBack(self._instance, next(self._seqs), tokens, self.tokens.held_for_report(), self._refunds)
        self._refunds, self._lost_seq = 0, None
        self._begin(back, waiter)
        return back

    def _begin(self, request: Fetch | GiveBack, waiter: Waiter | None) -> None:
        """Let a request be under way; first its caller is to know of it, who gives it up when interrupted."""
        if waiter is not None:
            waiter.request = request
        self._in_flight = request

    def _wake_next(self) -> None:
        """The leader may send something to the store now, or whoever closes."""
        self._queue.wake_leader()
        if self._closer is not None:
            self._queue.wake(self._closer)
