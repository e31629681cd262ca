"""One key's reservoir under its lock; which thread sends its request, and where the others wait for a refill."""

import math
import threading
from collections.abc import Callable
from random import uniform
from threading import get_ident
from typing import TypeVar

from batchlimit.base.blocking import OwnLock, not_reentered, own_lock
from batchlimit.base.waiting import LONG_AGO
from batchlimit.base.waking import Event, TaskEvent
from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.census import BaseKeyEntry
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.waiter import RETIRED, Fetch, NoEvent, Retired, Waiter, Wakeable
from batchlimit.stores.guard import MANY
from batchlimit.sync.guarded_store import GuardedStore


class Sender:
    """The thread that sends one request of a key; NO_SENDER while none is in flight."""

    __slots__ = ("request", "thread")

    def __init__(self, request: object) -> None:
        """This thread sends it."""
        self.request = request
        self.thread = 0 if request is None else get_ident()  # 0: another one will

    def sends(self, in_flight: object) -> bool:
        """Whether this very thread sends it: then a handler that interrupted the sending would wait for ever."""
        return self.thread == get_ident() and in_flight is self.request is not None


NO_SENDER = Sender(None)


AWAKE: Wakeable = NoEvent()
"""What a thread waits on until it sleeps for the first time: it looks for itself."""

T = TypeVar("T")
_LOOK = 60.0
"""The background thread looks at a key entry after so many seconds at the latest, so that its plans do not pile up."""
_LOST = 1.0
"""A plan that is overdue for so many seconds is made anew: the thread that made it may have been interrupted."""


class KeyEntry(BaseKeyEntry):
    """Where the threads that use one key meet: every change of its reservoir is made here, under the lock.

    What a thread does without the lock: `fetch` asks the store and reports; a WaitingThread waits. `due` is the instant
    at which the background thread comes next.
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
        self.lock = own_lock()  # held to touch the reservoir, never while the store is asked or a thread sleeps
        self.store = store
        self.clock = clock
        self.sender = NO_SENDER
        # While refills bring many tokens, one thread at a time looks for some and asks; those behind it find what it
        # brought. In the queue each thread has to be woken, to be served one token. With 64 threads and a batch of
        # 1,000 tokens that took three times as long as everything else.
        self.refill_gate: threading.Lock | None = None
        self.watch, self.finish = watch, finish

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
            if (in_flight := self.reservoir.state.in_flight) is not self.sender.request:
                self.sender = NO_SENDER if in_flight is None else Sender(in_flight)
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


def fetch(entry: KeyEntry, request: Fetch) -> None:
    """Ask the store and report."""
    outcome: Grant | StoreUnavailable
    try:
        outcome = entry.store.take(entry.key, request.quota, request.ask)
    except StoreUnavailable as error:
        outcome = error
    except BaseException:
        lose(entry, request)
        raise
    report(entry, request, outcome)


def lose(entry: KeyEntry, request: Fetch) -> None:
    """Report that a request has no answer and that nobody waits for one: another caller asks again."""
    entry.locked(lambda: entry.reservoir.failed(request, None, entry.clock()))


def report(entry: KeyEntry, request: Fetch, outcome: Grant | StoreUnavailable) -> None:
    """Report what became of a request."""
    if isinstance(outcome, StoreUnavailable):
        entry.locked(lambda: entry.reservoir.failed(request, outcome, entry.clock()))
        return
    is_for_many = outcome.granted >= MANY and entry.clock() - request.sent < entry.store.brief
    entry.locked(lambda: entry.reservoir.granted(request, outcome, entry.clock(), entry.uniform(0.75, 1.25)))
    entry.refill_gate = (entry.refill_gate or threading.Lock()) if is_for_many else None
