"""The slots of all keys of one limiter instance, and the thread that talks to the store about them."""

import atexit
import itertools
import math
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from random import uniform
from typing import Any, TypeVar

from batchlimit.blocking import Event
from batchlimit.errors import ConcurrencyLimited, LimiterClosed, StoreUnavailable
from batchlimit.lending.messages import SlotAsk, SlotPush
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.key import check_key
from batchlimit.reentry import free, own_lock
from batchlimit.shared.keys import Keys
from batchlimit.shared.lease import Place
from batchlimit.shared.limits import Shared
from batchlimit.shared.line import Waiter
from batchlimit.shared.local_slots import LocalSlots
from batchlimit.shared.permit import BaseSharedPermit
from batchlimit.shared.protocols import Closable, Lender, Wakeable
from batchlimit.shared.pushes import Listener, Pushes
from batchlimit.shared.statistics import SharedStatistics, Totals
from batchlimit.stores.outage import unavailable
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.unique import Forkables

CLOSED = "this concurrency limiter was closed"

_SECOND = 1_000_000_000
_LOOK = (0.5, 1.0)
"""Seconds after which an instance that waits asks again, at least and at most: a push may have been lost."""
_RETRY = (0.05, 0.15)
"""Seconds after a failed ask until the next one; none is sent while the circuit breaker is open."""
_FLUSH = 1.0
"""Seconds that `close` waits until the store has back what is free."""


T = TypeVar("T", bound=Wakeable)


class Engine:
    """Hands out places to callers of any thread or event loop, and asks the store in a thread of its own.

    No method blocks but for microseconds on the lock, and `close` for a second. The thread renews leases too: an event
    loop that is busy for seconds, or a caller's thread that waits for something, keeps its slots.

    Attributes:
        clock: Returns ns, counts the sleep of the machine, and never runs backwards.
    """

    def __init__(
        self,
        store: GuardedStore,
        lender: Lender,
        limit_of: Callable[[str], Shared],
        *,
        policy_of: Callable[[str], FailurePolicy],
        weight: int,
        clock: Callable[[], int],
    ) -> None:
        self._store, self._lender, self._limit_of, self._weight = store, lender, limit_of, weight
        self._policy_of, self.clock = policy_of, clock
        self._is_closed = self._is_retired = False
        self._totals = Totals()
        self._owned: Closable | None = None
        self._inherited: object = None
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        self._instance, self._numbers = secrets.token_hex(8), itertools.count(1)
        self._lock = own_lock()
        self._keys = Keys(getattr(self._lender, "name", str))
        self._abandoned: deque[tuple[str, Place]] = deque()
        self._wake, self._flushed = Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None

    def __repr__(self) -> str:
        return f"<Engine of {len(self._keys)} keys>"

    def own_store(self, store: Closable, connect_timeout: float) -> None:
        """Close this store at the end."""
        self._owned = store
        self._store.allow(connect_timeout)

    # Callers

    def enter(
        self, permit: BaseSharedPermit, timeout: float, priority: int, turn: type[T]
    ) -> tuple[Waiter, T, float] | None:
        """Let a permit have a place that is free here; else return the waiter, what it waits for, and how long (s).

        Raises:
            ConcurrencyLimited: Too many wait already.
            LimiterClosed: The limiter was closed.
            RuntimeError: The call came amid another one of this thread, from a signal handler or a destructor.
        """
        with free(self._lock):
            if self._is_closed:
                raise LimiterClosed(CLOSED)
            slots = self._keys.by_key.get(permit.key) or self._make(permit.key)
            now = self.clock()
            permit._place = slots.enter(now)
            if permit._place is not None:
                return None
            seconds = slots.line.queue.patience(timeout)
            if seconds > 0 and slots.line.is_full:
                raise self._refusal(slots, "queue_full")
            if seconds <= 0 and slots.is_sought:
                raise self._refusal(slots, "limit")
            made = turn()
            waiter = Waiter(made.wake, seconds > 0, priority)
            slots.line_up(waiter, now)
            self._note(slots, now)
        return waiter, made, seconds or math.inf

    def stop_waiting(self, permit: BaseSharedPermit, waiter: Waiter) -> None:
        """End a wait: let the permit have what the waiter got.

        Raises:
            ConcurrencyLimited, StoreUnavailable, LimiterClosed: It got nothing.
        """
        with self._lock:
            slots = self._keys.by_key.get(permit.key)
            if slots is not None and waiter in slots.line:
                slots.give_up(waiter, self.clock())
                self._note(slots, self.clock())
                raise slots.error or self._refusal(slots, "queue_timeout")
            if waiter.error is not None:
                self._totals.refused += isinstance(waiter.error, ConcurrencyLimited)
                raise waiter.error
            if waiter.place is None:  # in a forked child
                raise LimiterClosed("the process was forked while this caller waited")
            permit._place = waiter.place

    def desert(self, key: str, waiter: Waiter) -> None:
        """End a wait whose caller wants nothing any more."""
        with self._lock:
            if (slots := self._keys.by_key.get(key)) is None:
                return
            now = self.clock()
            served = slots.give_up(waiter, now)
            self._note(slots, now)
        self._wake_all(slots, served)

    def leave(self, key: str, place: Place) -> None:
        """Take back the place of a permit; soon, if this came amid another call of this thread."""
        if self._lock._is_owned():
            self.abandon(key, place)
            return
        with self._lock:
            if (slots := self._keys.by_key.get(key)) is None:
                return
            now = self.clock()
            served = slots.leave(place, now)
            self._note(slots, now)
        if served:
            self._wake_all(slots, served)

    def abandon(self, key: str, place: Place) -> None:
        """Take back the place of a permit that the garbage collector found, soon: this may run amid anything."""
        self._abandoned.append((key, place))
        self._wake.set()

    # Life

    def statistics(self) -> SharedStatistics:
        """Return what is held now, and what was counted."""
        with self._lock:
            return self._totals.statistics(self._keys)

    def close(self, seconds: float = _FLUSH) -> None:
        """Let nobody enter any more, and give back what is free; permits under way are kept until they end."""
        with self._lock:
            self._is_closed = True
            woken = [(slots, slots.close(LimiterClosed(CLOSED), self.clock())) for slots in self._keys]
            for slots, _ in woken:
                self._note(slots, self.clock())
            is_running = self._thread is not None
        for slots, waiters in woken:
            self._wake_all(slots, waiters)
        if is_running:
            self._wake.set()
            self._flushed.wait(seconds)
        else:
            self._end()

    def retire(self) -> None:
        """Close soon: for a limiter that was dropped unclosed. This may run amid anything, and takes no lock."""
        self._is_retired = True
        self._wake.set()

    def after_fork(self) -> None:
        """Hold nothing in a forked child: all places and waiters are those of the parent."""
        for slots in self._keys:
            slots.forget()
        # Kept for ever: their destructors may take locks that nobody releases.
        self._inherited = self._inherited, self._keys, self._thread, self._listener
        self._store.after_fork()
        self._begin()

    def _end(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        if forget := getattr(self._lender, "forget", None):
            forget(self._instance)
        self._store.stop()
        if self._owned is not None:
            self._owned.close()
        self._flushed.set()

    # Keys; these require the lock

    def _make(self, key: str) -> LocalSlots:
        shared = self._limit_of(check_key(key))
        slots = LocalSlots(key, shared, self._new_name, self._weight)
        self._keys.add(slots)
        if self._thread is None:
            self._start()
        return slots

    def _start(self) -> None:
        lender: Any = self._lender
        if hasattr(lender, "listen"):
            lender.listen(self._instance, self._receive)
        elif hasattr(lender, "subscribe"):
            self._listen(lambda: lender.subscribe(self._instance))
        thread = threading.Thread(target=self._run, name="batchlimit-permits", daemon=True)
        thread.start()
        self._thread = thread

    def _listen(self, subscribe: Callable[[], Pushes]) -> None:
        listener = Listener(subscribe, self._receive, self._look_at_all)
        listener.start()
        self._listener = listener

    def _new_name(self) -> str:
        return f"{self._instance}.{next(self._numbers)}"

    def _refusal(self, slots: LocalSlots, reason: str) -> ConcurrencyLimited:
        self._totals.refused += 1
        return slots.refusal(reason)

    def _note(self, slots: LocalSlots, now: float) -> None:
        """Plan the next ask about a key; wake the thread if it is due."""
        if self._keys.note(slots, now):
            self._wake.set()

    # The thread

    def _run(self) -> None:
        while (due := self._due()) is not None:
            for slots in due:
                self._exchange(slots)
            if not due:
                pause = (self._keys.next() - self.clock()) / _SECOND
                self._wake.wait(max(0.0, pause))
        self._end()

    def _due(self) -> list[LocalSlots] | None:
        """Return the keys to ask about; None: all is over."""
        self._sweep()
        with self._lock:
            due = self._keys.due(self.clock())
            if self._is_closed and not due:
                if not self._keys:
                    return None
                self._flushed.set()
        return due

    def _sweep(self) -> None:
        while self._abandoned:
            self.leave(*self._abandoned.popleft())
        if self._is_retired and not self._is_closed:
            self.close(0.0)

    def _exchange(self, slots: LocalSlots) -> None:
        with self._lock:
            sent = self.clock()
            lost = slots.expire(sent)
            self._totals.lost += len(lost)
            ask = None if self._drop(slots) else slots.ask(sent)
        for place in lost:
            place.give_up()
        if ask is not None:
            self._wake_all(slots, self._answered(slots, ask, sent))

    def _answered(self, slots: LocalSlots, ask: SlotAsk, sent: int) -> Sequence[Waiter]:
        """Ask the store; return the waiters to be woken."""
        key = slots.key
        try:
            reply = self._store.call(key, self._lender.lend, key, ask)
        except Exception as error:  # noqa: BLE001  callers wait for this thread, whatever befalls it
            return self._failed(slots, error if isinstance(error, StoreUnavailable) else unavailable(error))
        with self._lock:
            now = self.clock()
            woken = slots.answer(ask, reply, sent, now)
            if slots.line:
                slots.due = min(slots.due, now + uniform(*_LOOK) * _SECOND)
            self._totals.asks += 1
            self._note(slots, now)
            self._drop(slots)
        return woken

    def _failed(self, slots: LocalSlots, error: StoreUnavailable) -> Sequence[Waiter]:
        with self._lock:
            now = self.clock()
            woken = slots.fail(error, round(now + uniform(*_RETRY) * _SECOND), self._admits(slots))
            self._note(slots, now)
        return woken

    def _drop(self, slots: LocalSlots) -> bool:
        """Forget a key of which nothing is left here or at the store. Requires the lock."""
        if not slots.is_over:
            return False
        if self._keys.drop(slots):
            self._totals.admitted += slots.admitted
        return True

    def _admits(self, slots: LocalSlots) -> float:
        """Return how many permits of a key may be under way here while the store is away."""
        policy = self._policy_of(slots.key)
        if policy.kind != "local":
            return math.inf if policy.kind == "open" else 0
        instances = max(slots.last.instances if slots.last else 0, policy.instances or 0)
        return self._limit_of(slots.key).limit // instances if instances else 0

    def _receive(self, name: str, push: SlotPush) -> None:
        with self._lock:
            if (slots := self._keys.by_name.get(name)) is None:
                return
            now = self.clock()
            woken = slots.hear(push, now)
            self._note(slots, now)
        self._wake_all(slots, woken)

    def _look_at_all(self) -> None:
        with self._lock:
            now = self.clock()
            for slots in self._keys:
                slots.look(now)
                self._note(slots, now)

    def _wake_all(self, slots: LocalSlots, woken: Sequence[Waiter]) -> None:
        """Wake waiters; what one got whose event loop is closed goes to the next."""
        woken = list(woken)
        for waiter in woken:
            try:
                waiter.wake()
            except RuntimeError:
                with self._lock:
                    now = self.clock()
                    woken.extend(slots.give_up(waiter, now))
                    self._note(slots, now)


_living: Forkables[Engine] = Forkables()


@atexit.register
def _close_all() -> None:
    for engine in _living:
        engine.close()
