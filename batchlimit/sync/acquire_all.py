"""Several keys at once: all of them are charged, or none."""

from collections.abc import Iterable, Sequence

from batchlimit.base.blocking import warn_in_loop
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import RateLimited, StoreUnavailable
from batchlimit.keyspace.several import SeveralKeys
from batchlimit.quota.key import Costs
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.forecast import Prospect
from batchlimit.reservoir.waiter import Fetch, Refuse, half_of
from batchlimit.sync import store_calls
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.registry import Registry
from batchlimit.sync.waiting_thread import WaitingThread


class AcquireAll(SeveralKeys[WaitingThread]):
    """Charges several keys for one caller: it holds tokens of some keys until it holds those of all.

    A caller that is refused at one key returns the tokens of the others, and waits at that key alone. Once served there
    it waits for the others too, for half of its tokens' lease. If it cannot get all of them by then, it returns its
    tokens and tries again. It keeps its place in each queue, so it succeeds where all keys have a queue.
    """

    def __init__(self, costs: Costs, registry: Registry, priority: int = 1) -> None:
        super().__init__(costs, registry, registry.live_entry, priority)
        self._store, self._finish = registry.store, registry.finish
        self._begun: dict[str, WaitingThread] = {}  # asked for together

    def _try(self, behind: str | None, until: float) -> str | None:
        """Take all keys, or leave all queues; return the one that is short."""
        try:
            short = self._take(behind, until)
            self._leave()
            return short
        except (RateLimited, StoreUnavailable):
            self._leave()
            raise
        except BaseException:
            self._finish(self._leave)
            self._leave()
            raise

    def _take(self, behind: str | None, until: float) -> str | None:
        """Take all keys, waiting first at the one that was short before; return the one that is short now."""
        patience = NO_WAIT if behind is None else self._wait_at(behind, until)
        prospects = self._prospects(behind)
        cold = [key for key, prospect in prospects.items() if prospect == Prospect.UNKNOWN]
        known = list(prospects)[: len(prospects) - len(cold)]
        if (short := self._short_of(known, patience, until)) is not None:
            return short
        if behind is None:  # else a caller may wait for this one in one queue, and this one for it in another
            self._ask_together(cold)
        short = self._short_of(cold, patience, until)
        return self._confirm() if short is None else short

    def _wait_at(self, key: str, until: float) -> float:
        """Wait in the queue of this key while holding nothing; return until when to wait for the others then."""
        settled = self._hold(key, until)
        if isinstance(settled.verdict, Refuse):
            raise settled.refusal(key, self._clock())
        return half_of(settled.verdict, until, self._clock())

    def _short_of(self, keys: Iterable[str], patience: float, until: float) -> str | None:
        """Take these, up to the first one that refuses; return that one, if there is time to wait for it."""
        for key in keys:
            settled = self._hold(key, patience)
            if isinstance(settled.verdict, Refuse):
                if self._clock() + settled.verdict.retry_after > until:
                    raise settled.refusal(key, self._clock())
                return key
        return None

    def _ask_together(self, keys: Sequence[str]) -> None:
        """Ask in one round trip for those of several keys whose queues are empty."""
        if len(keys) == 1 or not self._store.is_pipelined:
            return
        warn_in_loop()
        for first in range(0, len(keys), store_calls.TOGETHER):
            some = keys[first : first + store_calls.TOGETHER]
            if requests := [request for key in some if (request := self._begin(key)) is not None]:
                store_calls.fetch_together(self._store, requests)

    def _begin(self, key: str) -> tuple[KeyEntry, Fetch] | None:
        caller = self._caller(key, NO_WAIT)
        if (step := caller.join_first()) is None:
            self._held.pop()
            return None
        self._places[caller.entry] = caller.waiter.number
        self._begun[key] = caller
        return (caller.entry, step) if isinstance(step, Fetch) else None

    def _hold(self, key: str, until: float) -> AdmissionResult:
        if (caller := self._begun.pop(key, None)) is not None:
            if (settled := caller.result()) is not None:
                return settled
            self._held.remove(caller)
        while True:
            caller = self._caller(key, until)
            if (settled := caller.wait()) is not None:
                self._places[caller.entry] = caller.waiter.number
                return settled
            self._held.pop()  # the key entry had just retired

    def _caller(self, key: str, until: float) -> WaitingThread:
        """Return a caller that joins the queue next. It is held before: an interrupt may come between any two lines."""
        caller = WaitingThread(self._find(key), self._costs[key], until, tentative=True, priority=self._priority)
        caller.waiter.number = self._places.get(caller.entry, 0)
        self._held.append(caller)
        return caller

    def _leave(self) -> None:
        self._begun.clear()
        for caller in self._held:  # which leave once, also where this is interrupted and done again
            caller.leave()
        self._held = []
