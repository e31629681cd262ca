"""Calls of tasks for keys that are not in use: they spend at the store, and no entry is made."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence

from batchlimit.aio import store_calls
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.aio.spend_queue import SpendQueue, Start
from batchlimit.base.blocking import check_recursion_depth
from batchlimit.base.decision import Decision
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.keyspace.key_spend import KeySpend, Outcome, Settled, is_charged, longest
from batchlimit.keyspace.spending import Spending
from batchlimit.quota.key import check_key
from batchlimit.reservoir.admission import AdmissionResult


class Spends:
    """Spends for the callers of one limiter; what cannot be done so is for an entry of the key."""

    def __init__(
        self,
        spending: Spending[KeyEntry],
        store: GuardedStore,
        clock: Callable[[], float],
        *,
        find: Callable[[str], KeyEntry],
        check_open: Callable[[], None],
        idle: Callable[[float], None],
        start: Start,
    ) -> None:
        """Begin.

        Args:
            spending: begins and settles spends.
            store: where to spend.
            clock: returns seconds.
            find: brings a key into use, or raises LimiterClosed.
            check_open: raises LimiterClosed after close().
            idle: is called with the instant at which to forget a key (inf: no need).
            start: starts a task.
        """
        self._spending, self._store, self._clock = spending, store, clock
        self._find, self._check_open, self._idle = find, check_open, idle
        self.queue = SpendQueue(store, spending, start, self._heard)

    def __repr__(self) -> str:
        return f"<Spends by {self.queue!r}>"

    async def one(self, key: str, cost: int, until: float, priority: int = 1) -> Settled | None:
        """Settle a call at a key that is not in use; raises what went wrong. None: by its entry."""
        if (begun := self._begin({check_key(key): cost})) is None:
            return None
        outcome = await self._spend(begun)
        if outcome is None:
            return None
        return begun[0] if is_charged(outcome) else await self._in_vain(begun[0], outcome, until, priority)

    async def all(self, costs: Mapping[str, int]) -> dict[str, Decision] | None:
        """Charge several keys, none of which is in use, or none; return what to tell. None: by their entries."""
        for key in costs:
            check_key(key)
        if (begun := self._begin(costs)) is None or not isinstance(outcome := await self._spend(begun), tuple):
            return None
        if is_charged(outcome):
            return {each.key: each.decision() for each in begun}
        short = longest(begun)
        settled = await self._in_vain(short, outcome, NO_WAIT)
        return None if settled is None or settled.admitted else {short.key: settled.decision(self._clock())}

    def refund(self, costs: Mapping[str, int]) -> None:
        """Take back what was charged, too late to be of use."""
        for key, cost in costs.items():
            store_calls.refund(self._find(key), cost)

    def _begin(self, costs: Mapping[str, int]) -> list[KeySpend] | None:
        """Begin to spend; None: a key needs its entry."""
        if not (self._store.spends if len(costs) == 1 else self._store.spends_together):
            return None
        check_recursion_depth()
        self._check_open()
        return self._spending.begin(costs)

    async def _spend(self, begun: Sequence[KeySpend]) -> Outcome:
        """Ask the store, and take in what it says."""
        answer = self.queue.spend(begun)
        try:
            outcome = await answer
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                if not answer.cancel() and not answer.cancelled():  # it came before its caller could wake
                    self._undo(begun, answer.result())
            raise
        self._check_open()  # whoever closes the limiter meanwhile fails its callers
        return outcome

    def _heard(self, begun: Sequence[KeySpend], answer: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
        try:
            in_time, idle_at = self._spending.settle(begun, outcome)
            if idle_at < math.inf:
                self._idle(idle_at)
        except BaseException:  # a signal handler of the user's own: the caller asks again
            if not answer.done():
                answer.set_result(None)
            self._spending.end(begun)
            raise
        is_awaited = not answer.done()
        if is_awaited:
            answer.set_result(in_time)
        if in_time is None or not is_awaited:
            self._undo(begun, outcome)

    def _undo(self, begun: Sequence[KeySpend], outcome: Outcome) -> None:
        """Take back what was charged for a caller that was cancelled, or asks again because the answer came late."""
        if is_charged(outcome):
            with contextlib.suppress(LimiterClosed):
                self.refund({each.key: each.message.cost for each in begun})

    async def _in_vain(
        self, spend: KeySpend, outcome: Outcome, until: float, priority: int = 1
    ) -> AdmissionResult | None:
        """Have the key come into use, and its entry take in what came of the spend; None: it is in use by now."""
        entry, fetch = self._find(spend.key), self._spending.fetch(spend)
        if (caller := entry.adopt(fetch, spend.message.cost, until, priority)) is None:
            return None
        entry.report(fetch, outcome if isinstance(outcome, StoreUnavailable) else spend.refusal())
        return await caller.result()
