"""One key's reservoir under its lock, its requests, and where threads wait for a refill."""

import math
import threading
from collections.abc import Callable, Sequence
from random import uniform
from threading import get_ident
from typing import TypeVar

from batchlimit.base.blocking import OwnLock, not_reentered
from batchlimit.base.waiting import LONG_AGO, NO_WAIT
from batchlimit.base.waking import Event, TaskEvent
from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.census import BaseKeyEntry
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.waiter import RETIRED, Fail, Fetch, NoEvent, Retired, Waiter, Wakeable
from batchlimit.stores.guard import MANY
from batchlimit.sync.guarded_store import GuardedStore

AWAKE: Wakeable = NoEvent()
"""What a thread waits on until it sleeps for the first time: it looks for itself."""

T = TypeVar("T")
_LOOK = 60.0
"""The background thread looks at a key entry after so many seconds at the latest, so that its plans do not pile up."""
_LOST = 1.0
"""A plan that is overdue for so many seconds is made anew: the thread that made it may have been interrupted."""


class KeyEntry(BaseKeyEntry):
    """Where the threads that use one key meet: every change of its reservoir is made here, under the lock.

    Without the lock a thread asks the store, and waits: see WaitingThread. `due` is the instant at which the background
    thread comes next. It has 13 public methods: each is one event at a key.
    """

    __slots__ = ("clock", "finish", "lock", "refill_gate", "sender", "store", "watch")
    lock: OwnLock
    thread_event: Callable[[], Event] = Event
    """What a thread waits on, and a task."""
    task_event: Callable[[], TaskEvent] = TaskEvent
    uniform: Callable[[float, float], float] = staticmethod(uniform)
    """What draws jitter; a simulation does by its seed."""

    def __init__(
        self,
        key: str,
        reservoir: Reservoir,
        store: GuardedStore,
        clock: Callable[[], float],
        watch: Callable[["KeyEntry"], None],
        finish: Callable[[Callable[[], object]], object],
    ) -> None:
        """`watch` has the background thread come at `due`, `finish` has it end what an interrupted caller began."""
        self.key, self.reservoir, self.tokens, self.due = key, reservoir, reservoir.tokens, math.inf
        self.lock = OwnLock()  # held to touch the reservoir, never while the store is asked or a thread sleeps
        self.store = store
        self.clock = clock
        self.sender: tuple[object, int] = (None, 0)  # a request, and the thread that sends it; 0: another one will
        # While refills bring many tokens, one thread at a time looks for some and asks; those behind it find what it
        # brought. In the queue each thread has to be woken, to be served one token. With 64 threads and a batch of
        # 1,000 tokens that took three times as long as everything else.
        self.refill_gate: threading.Lock | None = None
        self.watch, self.finish = watch, finish

    @property
    def sends(self) -> bool:
        """Whether this very thread sends the request in flight: a handler that interrupted that would wait for ever."""
        request, thread = self.sender
        return thread == get_ident() and request is self.reservoir.state.in_flight is not None

    def take(self, cost: int) -> float:
        """Spend free tokens unless a caller waits for them; return until when they count (LONG_AGO: too few)."""
        with not_reentered(self.lock):
            before = self.tokens.take(cost)
        if before == LONG_AGO and self.tokens.low_watermark:
            before = self.locked(lambda: self.reservoir.requests.take_low(cost))
        if self.clock() < before:
            return before
        if before != LONG_AGO:
            self.took_late(cost)
        return LONG_AGO

    def took_late(self, cost: int) -> None:
        """Uncount tokens that were taken too late to be spent."""
        with not_reentered(self.lock):
            self.tokens.took_late(cost)

    def join(self, waiter: Waiter) -> Retired | None:
        """Put a caller in the queue; Retired: there is none any more. Requires the lock."""
        if self.reservoir.state.is_retired:
            return RETIRED
        self.reservoir.admission.join(waiter)
        return None

    def tend(self) -> Fetch | GiveBack | None:
        """Return what the background thread is to send, and plan when it comes again."""

        def look() -> Fetch | GiveBack | None:
            self.due = math.inf
            return self.reservoir.lifecycle.tend(self.clock())

        return self.locked(look)

    def evict(self) -> bool:
        """Retire to make room, unless a caller needs this key entry; the background thread does not come again."""
        if self.lock._is_owned():  # the code that this call interrupted is changing it
            return False
        with self.lock:
            if not self.reservoir.lifecycle.evict():
                return False
            self.due = math.inf
            return True

    def locked(self, change: Callable[[], T]) -> T:
        """Change the reservoir under the lock; then, without it, wake the waiters concerned."""
        with not_reentered(self.lock):
            result = change()
            if (in_flight := self.reservoir.state.in_flight) is not self.sender[0]:
                self.sender = in_flight, get_ident()
            awake = self.reservoir.to_wake()
            sooner = in_flight is None and self._look_sooner()
        for waiter in awake:
            if (event := waiter.event) is not AWAKE:
                event.set()
        if sooner:
            self.watch(self)
        return result

    def _look_sooner(self) -> bool:
        """Requires the lock. Whether the background thread must come earlier than it planned."""
        now = self.clock()
        is_planned = self.due > now - _LOST
        if is_planned and self.due <= self.reservoir.at_rest_until:
            return False
        due = max(self.reservoir.lifecycle.due(), now)
        if is_planned and self.due <= due:  # that one is no later than _LOOK from now
            return False
        self.due = min(due, now + _LOOK)
        return True

    def fetch(self, request: Fetch) -> None:
        """Ask the store and report."""
        outcome: Grant | StoreUnavailable
        try:
            outcome = self.store.take(self.key, request.quota, request.ask)
        except StoreUnavailable as error:
            outcome = error
        except BaseException:
            self.lose(request)
            raise
        self.report(request, outcome)

    def lose(self, request: Fetch) -> None:
        """Report that a request has no answer and that nobody waits for one: another caller asks again."""
        self.locked(lambda: self.reservoir.failed(request, None, self.clock()))

    def report(self, request: Fetch, outcome: Grant | StoreUnavailable) -> None:
        """Report what became of a request."""
        if isinstance(outcome, StoreUnavailable):
            self.locked(lambda: self.reservoir.failed(request, outcome, self.clock()))
            return
        is_for_many = outcome.granted >= MANY and self.clock() - request.sent < self.store.brief
        self.locked(lambda: self.reservoir.granted(request, outcome, self.clock(), self.uniform(0.75, 1.25)))
        self.refill_gate = (self.refill_gate or threading.Lock()) if is_for_many else None

    def give_back(self, back: GiveBack) -> None:
        """Return tokens, once; those that the store does not take expire there."""
        unsent = None
        try:
            self.store.give_back(self.key, self.reservoir.state.quota, back)
        except CircuitOpen:
            unsent = back
        finally:
            self.locked(lambda: self.reservoir.gave_back(self.clock(), unsent, back))

    def refund(self, cost: int) -> bool:
        """Take back tokens that were admitted and not used; at most one round trip. False: it has retired."""
        waiter, lifecycle = Waiter(cost, NO_WAIT, Event()), self.reservoir.lifecycle
        is_live, error = self._correct(waiter, lambda: lifecycle.refund(waiter, self.clock()))
        if error is not None and self.reservoir.state.fallback.fails_closed:
            raise Fail(lifecycle.ended or error).to_raise(self.key)  # once ended, it tells of that
        return is_live

    def debit(self, tokens: int) -> bool:
        """Charge tokens that were used and not admitted. False: it has retired."""
        return self.locked(lambda: self.reservoir.lifecycle.debit(tokens, self.clock()))

    def hold(self, seconds: float) -> bool:
        """Let go of what is leased, and ask for nothing meanwhile; False: it has retired."""
        waiter = Waiter(0, NO_WAIT, Event())
        is_live, _ = self._correct(waiter, lambda: self.reservoir.lifecycle.pause(seconds, self.clock(), waiter))
        return is_live  # what does not arrive expires there

    def _correct(self, waiter: Waiter, change: Callable[[], GiveBack | None]) -> tuple[bool, StoreUnavailable | None]:
        """Change something, and send what goes back by that; return whether it is live, and what went wrong."""

        def begin() -> tuple[bool, GiveBack | None]:
            return (False, None) if self.reservoir.state.is_retired else (True, change())

        def leave() -> None:
            self.locked(lambda: self.reservoir.leave(waiter, self.clock()))

        try:
            is_live, back = self.locked(begin)
            if back is not None:
                self.give_back(back)
        except StoreUnavailable as error:
            leave()
            return True, error
        except BaseException:
            self.finish(leave)
            leave()
            raise
        return is_live, None


TOGETHER = 32
"""Requests that leave in one write at most: a server takes 3 ms for so many, and callers of each key wait as long."""


def fetch_together(store: GuardedStore, requests: Sequence[tuple[KeyEntry, Fetch]]) -> None:
    """Ask a store that is pipelined for several keys in one round trip, and report each."""
    try:
        outcomes = store.take_many([(entry.key, request.quota, request.ask) for entry, request in requests])
    except BaseException:
        for entry, request in requests:
            entry.lose(request)
        raise
    for (entry, request), outcome in zip(requests, outcomes, strict=True):
        entry.report(request, outcome)
