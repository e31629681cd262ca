"""Calls of threads for keys that are not in use: they spend at the store, and no entry is made.

They are sent together: whoever finds no room for one more call waits for another one's, which asks for all who came
meanwhile, and takes in what came of it.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from batchlimit.base.blocking import OwnLock, check_recursion_depth, not_reentered, warn_in_loop
from batchlimit.base.key import check_key
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.keyspace.base_registry import CLOSED
from batchlimit.keyspace.spending import MESSAGE, KeySpend, Outcome, Settled, Spending, is_charged, of_each
from batchlimit.quota.lookup import Constant
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.sync.waiting_thread import WaitingThread

if TYPE_CHECKING:
    from batchlimit.sync.registry import Registry

_MOST = 128
"""Buckets that go in one call, unless one group has more: a server takes 8 us for each, and others wait."""
_PATIENCE = 2.0
"""Seconds, beside two deadlines. A thread that leads for longer may have been interrupted, so another one leads too."""


class _Place:
    """One thread's place: it waits for another one's call, or leads; then `others` wait for it."""

    begun: Sequence[KeySpend] = ()
    outcome: Outcome = None
    is_told = is_late = False  # late: it was charged, but the answer is of no use any more
    others: "Sequence[_Place]" = ()
    woken: "threading.Lock | None" = None  # held from when it waits until it is woken; None: it never had to
    thread: int

    def line_up(self) -> None:
        """Be about to wait."""
        if self.woken is None:
            self.woken = threading.Lock()
            self.woken.acquire()

    def sleep(self, seconds: float) -> None:
        """Wait until somebody wakes it, but no longer than that."""
        assert self.woken is not None
        self.woken.acquire(timeout=seconds)

    def wake(self) -> None:
        """Requires the lock of the spends."""
        if self.woken is not None and self.woken.locked():
            self.woken.release()


class Spends:
    """Spends for the callers of one limiter; what cannot be done so is for an entry of the key.

    One call is under way at a time: its thread leads, and after it the first who waits. With two a decision takes the
    client 51 us where it is 42 (8 threads), 37 where it is 33 (64). A thread that comes alone asks at once, by itself.
    A thread that is interrupted hands on the lead, and those it led come again. Should even that be interrupted, the
    background thread does it; without one they come after a while. A signal handler asks by itself too: it must not
    wait for the call of its own thread that it has interrupted.

    An interrupt may come between any two lines: a place is put where it goes before it is taken from where it was.
    """

    def __init__(self, registry: "Registry", spending: Spending, lock: OwnLock, idle: Callable[[float], None]) -> None:
        """The `lock` is held to begin, to settle, and to touch who waits and who leads.

        `idle` is called with the instant at which to forget a key (inf: no need).
        """
        self._registry, self._spending, self._lock, self._idle = registry, spending, lock, idle
        self._store, self._clock = registry.store, registry.clock
        self._patience = _PATIENCE + 2 * registry.store.deadline
        self._inside: set[int] = set()  # threads that wait; one that was interrupted may stay there, and asks by itself
        self._waiting: OrderedDict[_Place, None] = OrderedDict()
        self._leader: _Place | None = None
        self._leads_until = 0.0  # by time.monotonic()

    def one(self, key: str, cost: int, until: float, priority: int = 1) -> Settled | None:
        """Settle a call at a key that is not in use; raises what went wrong. None: by its entry."""
        if not self._store.spends:
            return None
        begun, outcome = self.spend({check_key(key): cost})
        if not begun:
            return None
        spend = begun[0]
        if spend.spent.is_charged and outcome is not None:
            return spend
        return self.in_vain(spend, outcome, until, priority, joins=True)

    def spend(self, costs: Mapping[str, int]) -> tuple[Sequence[KeySpend], Outcome]:
        """Spend at checked keys; return what came of it, which is nothing where a key needs its entry."""
        if isinstance(quota := self._spending.code.quota, Constant):
            for key in costs:
                quota(key)  # without the lock: a function of the user's own, whose answer is kept
        check_recursion_depth()
        warn_in_loop()
        place = _Place()
        place.thread = threading.get_ident()
        try:
            self._send(place, costs)
        except BaseException:
            if place.begun or place.woken is not None or self._leader is place:
                self._registry.finish(lambda: self._leave(place))
                self._leave(place)
            raise
        if place.woken is not None and place.begun and self._clock() - place.begun[0].sent > self._spending.patience:
            with not_reentered(self._lock):
                if self._spending.wakes_late(place.begun, place.outcome):
                    place.outcome, place.is_late = None, True
        if place.is_late:  # the caller asks again
            self._registry.refund_all({each.key: each.message.cost for each in place.begun})
        if self._registry.closed:
            raise LimiterClosed(CLOSED)  # whoever closes the limiter meanwhile fails its callers
        return place.begun, place.outcome

    def _send(self, place: _Place, costs: Mapping[str, int]) -> None:
        """Begin, and lead or wait until all is settled; where a key needs its entry, until who came before asked."""
        try:
            with not_reentered(self._lock):
                if self._registry.closed:
                    raise LimiterClosed(CLOSED)
                place.begun = self._spending.begin(costs) or ()
                if not place.begun and not any(map(self._spending.is_asked, costs)):
                    return
                leads = place.thread in self._inside or not self._store.spends_together or self._leads(place)
            while not leads:
                place.sleep(self._patience)
                if place.is_told:
                    break
                with not_reentered(self._lock):
                    leads = not place.is_told and self._leads(place)  # type: ignore[redundant-expr]  # told by now
            else:
                (self._lead if place.begun else self._leave)(place)
        finally:
            if place.woken is not None:
                self._inside.discard(place.thread)

    def _leads(self, place: _Place) -> bool:
        """Whether it is this one's turn, with the first of all who wait; else it waits too. Requires the lock."""
        leader, waiting, now = self._leader, self._waiting, time.monotonic()
        if leader is not None and leader.thread != place.thread and now < self._leads_until:
            place.line_up()
            self._inside.add(place.thread)
            waiting[place] = None
            return False
        self._leader, self._leads_until = place, now + self._patience
        if waiting:
            waiting.pop(place, None)
            place.others = []
            buckets = len(place.begun) or _MOST  # who spends nothing is led by nobody, and leads nobody
            while waiting and (buckets := buckets + (len((first := next(iter(waiting))).begun) or _MOST)) <= _MOST:
                place.others.append(first)
                del waiting[first]
        return True

    def _lead(self, place: _Place) -> None:
        """Ask for all whom it leads, settle what came of it, and wake them."""
        asked = (place, *place.others)
        groups, looks = [list(map(MESSAGE, each.begun)) for each in asked], self._spending.looks
        spend = self._store.spender.spend
        try:
            reply = self._store.call(groups[0][0].key, partial(spend, look=looks, within=self._store.deadline), groups)
        except StoreUnavailable as error:
            self._store.spends_together &= error.code != "CROSSSLOT"
            outcomes = [of_each(error, groups)] * len(groups)
        else:
            if looks:
                self._spending.hear(reply.rules)
            outcomes = reply.groups
        with not_reentered(self._lock):
            idle_at = self._settle(asked, outcomes)
            if self._waiting or place.others or self._leader is not None:
                self._hand_on(place)
        if idle_at < math.inf:
            self._idle(idle_at)

    def _settle(self, asked: Sequence[_Place], outcomes: Sequence[Outcome]) -> float:
        """Take in what became of several calls, and return when to forget their keys. Requires the lock."""
        kept: dict[str, bytes] = {}
        now = self._clock()
        for each, outcome in zip(asked, outcomes, strict=True):
            if each.is_told:  # it waited for long, and two leaders asked for it
                continue
            each.outcome = self._spending.hear_of(each.begun, outcome, now, kept)
            each.is_late, each.is_told = each.outcome is None and is_charged(outcome), True
            self._waiting.pop(each, None)
            if self._leader is each:  # or it was about to lead
                self._leader = None
        return self._spending.keep(kept, now)

    def _leave(self, place: _Place) -> None:
        with not_reentered(self._lock):
            self._spending.end(place.begun)
            self._waiting.pop(place, None)
            self._hand_on(place)

    def _hand_on(self, place: _Place) -> None:
        """Have the first who waits lead next, and wake those whom this one led. Requires the lock."""
        if self._leader is place:
            self._leader = None
        if self._waiting and self._leader is None:
            self._leads_until = time.monotonic() + self._patience
            self._leader = first = next(iter(self._waiting))
            del self._waiting[first]
        if self._leader is not None:
            self._leader.wake()
        for each in place.others:
            each.wake()

    def in_vain(
        self, spend: KeySpend, outcome: Outcome, until: float, priority: int = 1, *, joins: bool = False
    ) -> AdmissionResult | None:
        """Have the key come into use, and its entry take in what came of the spend.

        Where it is in use its caller `joins` the queue, ahead of all who came later. None: the call begins anew.
        """
        if outcome is None and spend.place not in self._registry.entries:
            return None
        entry = self._registry.live_entry(spend.key)
        caller = WaitingThread(entry, spend.message.cost, until, priority=priority)
        caller.waiter.number, fetch = spend.number, self._spending.fetch(spend)
        try:
            if outcome is None or not entry.locked(lambda: caller.adopt(fetch)):
                return caller.wait() if joins else None
            answer = outcome if isinstance(outcome, StoreUnavailable) else spend.refusal()
            entry.report(fetch, answer)
            return caller.result()
        except StoreUnavailable:
            caller.leave()
            raise
        except BaseException:  # a Ctrl-C falls where it will: whatever was begun for this caller is ended here
            entry.finish(caller.leave)
            caller.leave()
            raise
