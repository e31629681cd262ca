"""Admission: which callers are served, refused or wait, and the verdict on each."""

import math
from typing import Any, NamedTuple

from batchlimit.base.decision import Decision, Source
from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Grant
from batchlimit.errors import RateLimited
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.denial_cache import NO_DENIALS
from batchlimit.reservoir.forecast import Forecast
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Waiter


class QueueAdmission:
    """Gives the tokens that are here to waiters in order of arrival, and refuses those that have no prospect.

    While anyone waits, the free tokens are set aside for the first waiter, so small costs cannot starve a large one.

    It has 11 public methods: all of them keep the order of the queue.
    """

    __slots__ = ("_forecast", "_requests", "_state")

    def __init__(self, state: KeyState, forecast: Forecast, requests: Requests) -> None:
        self._state, self._forecast, self._requests = state, forecast, requests

    def join(self, waiter: Waiter) -> None:
        """Put a caller in the queue; one with a deadline of NO_WAIT takes the first answer."""
        if self._state.mode == "shadow":
            waiter.deadline = NO_WAIT  # the first answer says what was to become of it
        if waiter.cost == 0:
            waiter.verdict = Admit(math.inf)
        elif waiter.cost > self._most:
            # The API looked before, but the bucket may have told of less.
            waiter.verdict = self._too_much(waiter)
        else:
            self._state.queue.join(waiter)
            self._state.lease.reserve_for(self._state.queue.waiters)

    def confirm(self, waiter: Waiter) -> bool:
        """Let a tentative waiter spend its tokens; return whether somebody was held up by it, and is to be woken."""
        if waiter.tentative and isinstance(waiter.verdict, Admit):
            waiter.tentative = False  # first: a second confirmation would forget what others were given
            return self._confirm(waiter)
        return False

    def rejoin(self, waiter: Waiter, late: float) -> None:
        """Put a caller whose tokens expired back in its place: it woke so many seconds too late."""
        state = self._state
        state.view.woke_late(late)
        state.queue.join(waiter)
        if waiter.tentative:
            self._confirm(waiter)
        admit, waiter.verdict = waiter.verdict, None
        assert isinstance(admit, Admit)
        state.lease.forsake(waiter, admit)
        self.serve()

    def advance(self, now: float, *, is_counted: bool = False) -> None:
        """Bring everything up to now: count, unless that was done, let expired tokens go, and serve."""
        state, tokens = self._state, self._state.tokens
        if not is_counted:
            state.count(now)
        if now >= tokens.expires:
            state.fallback.pay_back(state.lease, now)
        state.lease.advance(now)
        self.serve()
        if tokens.low_watermark and tokens.available < tokens.low_watermark:
            self._requests.want_refill()

    def serve(self) -> None:
        """Give the tokens that are here to waiters, and to a debt, in order of arrival."""
        state, queue, lease, debt = self._state, self._state.queue, self._state.lease, self._state.overdraft.waiter
        lease.reserve_for(queue.waiters)
        is_changed = is_served = False
        while (first := queue.first) is not None:
            if first is debt:
                if not (paid := min(debt.cost, lease.reserved_for_waiters)):
                    break
                lease.spend(paid)
                state.overdraft.pay(paid, queue, state.largest_cost)
            elif first.verdict is None and first.cost > lease.reserved_for_waiters:
                break  # too few are here
            else:  # the thread that served it before may have been interrupted
                queue.dismiss(first, first.verdict or lease.serve(first))
                is_served = True
            is_changed = True
        if is_served:
            queue.wake_leader()
        if is_changed:
            lease.reserve_for(queue.waiters)

    def refuse(self, waiter: Waiter, now: float) -> Admit | Refuse:
        """Refuse a caller, and serve those behind it; in shadow mode it is admitted all the same."""
        state = self._state
        was_first = waiter is state.queue.first
        verdict: Admit | Refuse | None = state.pass_in_shadow(waiter)
        if verdict is None:
            state.tokens.refused += waiter.cost
            if waiter.deadline != NO_WAIT:
                state.timed_out += waiter.cost
            elif waiter.asked and not state.lease.borrowed:  # else memory says so
                state.refused_by_store += waiter.cost
            verdict = Refuse(self._forecast.retry_after(waiter, now))
        state.queue.dismiss(waiter, verdict)
        if was_first:
            self.serve()
        return verdict

    def turn_away(self, waiter: Waiter, now: float) -> Admit | Refuse:
        """Refuse a caller who looked; if it was the leader, another is now."""
        verdict = self.refuse(waiter, now)
        self._state.queue.wake_leader()
        return verdict

    def refuse_answered(self, now: float, fetch: Fetch | None = None, grant: Grant | None = None) -> None:
        """Refuse the waiters that take the first answer (no grant: the fallback's), and then the hopeless ones."""
        if not self._state.queue.waiters:
            return
        if fetch is None or grant is None:
            least: float = 0
        elif fetch.repeated:
            least = math.inf  # this answer is about an older question
        else:  # a grant that came too late to be spent says nothing about the bucket: the caller may ask once more
            least = 1 if grant.granted < fetch.ask.queued else 2
        for waiter in self._state.queue.hasty:  # each refusal may let others be served
            if waiter.verdict is None and waiter.asked >= least:
                self.refuse(waiter, now)
        self.refuse_hopeless(now)

    def refuse_hopeless(self, now: float) -> None:
        """Refuse every waiter that cannot be served in time; each one that goes leaves more for those behind it."""
        while (waiter := self._state.queue.first_late(self._forecast.horizon(now))) is not None:
            if waiter.verdict is None:
                self.refuse(waiter, now)
            else:  # the thread that set the verdict was interrupted
                self._state.queue.dismiss(waiter, waiter.verdict)

    def deny(self, cost: int, now: float) -> bool:
        """Refuse a call from memory, if memory does so, and let callers without the lock see it; False: it does not."""
        if not self._forecast.denies(cost, now):
            return False
        self._state.tokens.refused += cost
        self._state.publish()
        return True

    def obey(self, quota: Quota) -> None:
        """Go by the quota that the bucket obeys, if it is another one."""
        state = self._state
        if quota is state.quota or quota == state.quota:
            return
        state.set_quota(quota)
        for waiter in state.queue:
            if waiter.cost > self._most and waiter is not state.overdraft.waiter:
                state.queue.dismiss(waiter, self._too_much(waiter))
        state.overdraft.line_up(state.queue, state.largest_cost)

    @property
    def _most(self) -> int:
        """The largest cost that is not told at once that it never fits."""
        return self._state.most if self._state.mode == "open" else self._state.largest_cost

    def _confirm(self, waiter: Waiter) -> bool:
        """Let what a tentative waiter was given be spent, as far as the bucket is concerned."""
        lease, was_held_up = self._state.lease, self._state.is_held_up
        lease.pledged = max(0, lease.pledged - waiter.cost)
        if waiter.reports != lease.reports:
            lease.untold += waiter.cost
        if waiter.prompt:
            lease.prompt = max(0, lease.prompt - waiter.cost)
        is_free = was_held_up and not self._state.is_held_up
        if lease.untold and self._state.told_too_much:
            self._state.denials, is_free = NO_DENIALS, True
        if is_free:
            self._state.queue.wake_leader()
        return is_free

    def _too_much(self, waiter: Waiter) -> Admit | Fail | Refuse:
        """Return the verdict on a cost that never fits: while an operator's quota is below the code's, a refusal."""
        state = self._state
        if waiter.cost <= state.most:
            if (passed := state.pass_in_shadow(waiter)) is not None:
                return passed
            state.tokens.refused += waiter.cost
            return Refuse(math.inf)
        return Fail(ValueError(f"{waiter.cost} tokens never fit a burst of {state.largest_cost}"))


class AdmissionResult(NamedTuple):
    """How one call was settled: the verdict, how it came about, and the Decision for its caller."""

    verdict: Admit | Refuse
    waited: bool
    """Whether the call was not served from memory: its caller asked the store, or waited in the queue."""
    asked: bool
    """Whether an ask of the store spoke for it."""
    forecast: Forecast
    """Of the key that it was settled at."""

    @classmethod
    def hit(cls, before: float, forecast: Forecast, *, waited: bool = False) -> "AdmissionResult":
        """Return the result of a call that was admitted by tokens in memory, which count until `before`."""
        return cls(Admit(before), waited, asked=False, forecast=forecast)

    @property
    def admitted(self) -> bool:
        """Whether the call may go ahead."""
        return isinstance(self.verdict, Admit)

    def decision(self, now: float) -> Decision:
        """Say all that a caller wants to be told."""
        retry_after = self.verdict.retry_after if isinstance(self.verdict, Refuse) else 0.0
        return self.forecast.told(retry_after, self.source, now)

    def refusal(self, key: str, now: float) -> RateLimited:
        """Return what to raise where the call was refused."""
        told = self.decision(now)
        return RateLimited(key, told.retry_after, told)

    @property
    def source(self) -> Source:
        """The `source` of the Decision, unless the fallback decided."""
        if isinstance(self.verdict, Admit) and self.verdict.is_shadow:
            return "shadow"
        if self.asked:
            return "store"
        return "local" if self.admitted else "denied"


def result_of(caller: Any) -> AdmissionResult:
    """Return the result of a caller that has its verdict."""
    waiter: Waiter = caller.waiter
    assert isinstance(waiter.verdict, Admit | Refuse)
    return AdmissionResult(waiter.verdict, caller.waited, waiter.asked > 0, caller.entry.reservoir.forecast)
