"""Calls of threads for keys that are not in use: they spend at the store, and no entry is made."""

import math
from collections.abc import Callable, Mapping, Sequence

from batchlimit.base.blocking import OwnLock, check_recursion_depth, not_reentered, warn_in_loop
from batchlimit.base.decision import Decision
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.key_spend import KeySpend, Outcome, Settled, is_charged, longest
from batchlimit.keyspace.spending import Spending
from batchlimit.quota.key import check_key
from batchlimit.quota.lookup import Constant
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.sync import key_entry, store_calls
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.spend_queue import SpendQueue
from batchlimit.sync.waiting_thread import WaitingThread


class Spends:
    """Spends for the callers of one limiter; what cannot be done so is for an entry of the key."""

    def __init__(
        self,
        spending: Spending[KeyEntry],
        lock: OwnLock,
        store: GuardedStore,
        clock: Callable[[], float],
        *,
        find: Callable[[str], KeyEntry],
        check_open: Callable[[], None],
        idle: Callable[[float], None],
        finish: Callable[[Callable[[], object]], object],
    ) -> None:
        """Begin.

        Args:
            spending: begins and settles spends; the `lock` is held meanwhile.
            lock: see there.
            store: where to spend.
            clock: returns seconds.
            find: brings a key into use, or raises LimiterClosed.
            check_open: raises LimiterClosed after close().
            idle: is called with the instant at which to forget a key (inf: no need).
            finish: has the background thread end what an interrupted caller began.
        """
        self._spending, self._lock, self._store, self._clock = spending, lock, store, clock
        self._find, self._check_open, self._idle = find, check_open, idle
        self._queue = SpendQueue(store, spending, finish)

    def one(self, key: str, cost: int, until: float, priority: int = 1) -> Settled | None:
        """Settle a call at a key that is not in use; raises what went wrong. None: by its entry."""
        if (begun := self._begin({check_key(key): cost})) is None:
            return None
        outcome = self._spend(begun)
        if outcome is None:
            return None
        return begun[0] if is_charged(outcome) else self._in_vain(begun[0], outcome, until, priority)

    def all(self, costs: Mapping[str, int]) -> dict[str, Decision] | None:
        """Charge several keys, none of which is in use, or none; return what to tell. None: by their entries."""
        for key in costs:
            check_key(key)
        if (begun := self._begin(costs)) is None or not isinstance(outcome := self._spend(begun), tuple):
            return None
        if is_charged(outcome):
            return {each.key: each.decision() for each in begun}
        short = longest(begun)
        settled = self._in_vain(short, outcome, NO_WAIT)
        return None if settled is None or settled.admitted else {short.key: settled.decision(self._clock())}

    def refund(self, costs: Mapping[str, int]) -> None:
        """Take back what was charged, too late to be of use."""
        for key, cost in costs.items():
            store_calls.refund(self._find(key), cost)

    def _begin(self, costs: Mapping[str, int]) -> list[KeySpend] | None:
        """Begin to spend; None: a key needs its entry."""
        if not (self._store.spends if len(costs) == 1 else self._store.spends_together):
            return None
        if isinstance(quota := self._spending.code.quota, Constant):
            for key in costs:
                quota(key)  # without the lock: a function of the user's own, whose answer is kept
        check_recursion_depth()
        with not_reentered(self._lock):
            self._check_open()
            return self._spending.begin(costs)

    def _spend(self, begun: Sequence[KeySpend]) -> Outcome:
        """Ask the store, and take in what it says."""
        warn_in_loop()
        try:
            outcome = self._queue.spend([each.message for each in begun])
        except BaseException:
            with not_reentered(self._lock):
                self._spending.end(begun)
            raise
        with not_reentered(self._lock):
            in_time, idle_at = self._spending.settle(begun, outcome)
        if idle_at < math.inf:
            self._idle(idle_at)
        if in_time is None and is_charged(outcome):  # the caller asks again
            self.refund({each.key: each.message.cost for each in begun})
        self._check_open()  # whoever closes the limiter meanwhile fails its callers
        return in_time

    def _in_vain(self, spend: KeySpend, outcome: Outcome, until: float, priority: int = 1) -> AdmissionResult | None:
        """Have the key come into use, and its entry take in what came of the spend; None: it is in use by now."""
        entry = self._find(spend.key)
        caller = WaitingThread(entry, spend.message.cost, until, priority=priority)
        fetch = self._spending.fetch(spend)
        try:
            if not entry.locked(lambda: caller.adopt(fetch)):
                return None
            answer = outcome if isinstance(outcome, StoreUnavailable) else spend.refusal()
            key_entry.report(entry, fetch, answer)
            return caller.result()
        except StoreUnavailable:
            caller.leave()
            raise
        except BaseException:  # a Ctrl-C falls where it will: whatever was begun for this caller is ended here
            entry.finish(caller.leave)
            caller.leave()
            raise
