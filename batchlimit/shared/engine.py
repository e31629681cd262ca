"""The slots of all keys of one limiter instance, as callers use them, and the thread that asks the store about them."""

import atexit
import itertools
import math
import secrets
import threading
from collections import deque
from collections.abc import Callable
from os import getpid
from random import uniform
from typing import Any

from batchlimit.base import forks
from batchlimit.base.blocking import not_reentered
from batchlimit.base.forks import Forkables
from batchlimit.base.key import check_key, stored
from batchlimit.base.steps import Steps
from batchlimit.base.waking import ThreadWakeup
from batchlimit.bucket.slot_table import SlotAsk
from batchlimit.concurrency.waits import TaskWakeup
from batchlimit.errors import ConcurrencyLimited, LimiterClosed, StoreUnavailable
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.shared.held_slots import Claim, Place, SlotWaiter
from batchlimit.shared.holdings import Holdings
from batchlimit.shared.listener import Listener
from batchlimit.shared.local_slots import LocalSlots, Shared, forget, refusal
from batchlimit.shared.permit import BaseSharedPermit
from batchlimit.stores.outage import unavailable
from batchlimit.stores.protocols import Store
from batchlimit.sync.guarded_store import GuardedStore

Wakeup = ThreadWakeup | TaskWakeup
CLOSED = "this concurrency limiter was closed"

_SECOND = 1_000_000_000
_LOOK = (0.5, 1.0)
"""Seconds after which an instance that waits asks again, at least and at most: a push may have been lost."""
_RETRY = (0.05, 0.15)
"""Seconds after a failed ask until the next one; none is sent while the circuit breaker is open."""


class Engine:
    """Hands out places to callers of any thread or event loop, and blocks none of them but for its lock.

    A thread of its own asks the store, and wakes who waits. It renews leases too: an event loop that is busy for
    seconds, or a caller's thread, keeps its slots. A forked child begins anew.
    """

    def __init__(
        self,
        store: GuardedStore,
        lender: Any,
        limit_of: Callable[[str], Shared],
        *,
        policy_of: Callable[[str], FailurePolicy],
        weight: int,
        clock: Callable[[], int],
    ) -> None:
        # The lender raises StoreUnavailable if there is no answer; any ask may be repeated.
        self.store, self._lender, self._limit_of, self._policy_of = store, lender, limit_of, policy_of
        self._weight, self.clock = weight, clock
        self.owned: Store | None = None  # the store, if the limiter opened it: it is closed in the end
        self.is_closed = False
        self._inherited: object = None
        self._begin()
        live_engines.add(self)

    def _begin(self) -> None:
        name = getattr(self._lender, "name", lambda key: key)  # no str() of it: that would be the label of an enum
        self.holdings = Holdings(lambda key: name(stored(key)), self.clock)
        self._is_retired = self._has_begun = False
        self._instance, self._numbers = secrets.token_hex(8), itertools.count(1)
        self._gone, self._swept = deque[Claim](), 0
        self.gone: Callable[[Claim], None] = self._gone.append  # C code, which no signal interrupts
        self._flushed = threading.Event()
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None

    def after_fork(self) -> None:
        """Hold nothing in a forked child: all places and waiters are those of the parent."""
        for slots in self.holdings:
            forget(slots)
        self._inherited = vars(self).copy()  # kept for ever: its destructors may take locks of the parent
        self.store.after_fork()
        self._begin()

    # Callers

    def enter(
        self, permit: BaseSharedPermit, timeout: float, priority: int, kind: type[Wakeup]
    ) -> tuple[SlotWaiter, Wakeup, float] | None:
        """Let a permit have a free place; else return the waiter, what it waits for, and how long (s); or raise."""
        if getpid() != forks.process:
            forks.begin_anew()
        holdings = self.holdings
        with not_reentered(holdings.lock):
            if self.is_closed:
                raise LimiterClosed(CLOSED)
            if (slots := holdings.by_key.get(permit.key)) is None:
                shared = self._limit_of(check_key(permit.key))
                slots = LocalSlots(permit.key, shared, self._new_name, self._weight)
                self._start()
                holdings.add(slots)
            now, claim = self.clock(), Claim(permit, self.gone)
            claim.key = permit.key
            permit._place = slots.enter(now, claim)
            if permit._place is not None:
                return None
            seconds = slots.line.queue.patience(timeout)
            if seconds > 0 and slots.line.patient >= slots.line.queue.length:
                if (last := slots.line.displaced_by(priority)) is None:
                    raise holdings.refusal(slots, "queue_full")
                slots.line.refuse(last, refusal(slots, "queue_full"))
            if seconds <= 0 and slots.is_in_vain:
                raise holdings.refusal(slots, "limit")
            wakeup = kind()
            waiter = SlotWaiter(wakeup.wake, seconds > 0, priority, claim)
            slots.line_up(waiter, now)
            holdings.note(slots, now)
        if slots.line.unwoken:
            holdings.wake_all(slots)
        return waiter, wakeup, seconds or math.inf

    def waiting(self, permit: BaseSharedPermit, waiter: SlotWaiter, wakeup: Wakeup, seconds: float) -> Steps[None]:
        """Wait, as a thread or a task does; then let the permit have what the waiter got, or raise why it got none."""
        try:
            yield wakeup.wait(seconds)
        except BaseException:
            self.holdings.change(permit.key, lambda slots, now: slots.give_up(waiter, now))
            raise
        if waiter.place is None:
            holdings = self.holdings
            with holdings.lock:
                slots = holdings.by_key.get(permit.key)
                if slots is not None and waiter in slots.line:
                    slots.give_up(waiter, self.clock())
                    holdings.note(slots, self.clock())
                    raise slots.error or holdings.refusal(slots, "queue_timeout")
                if waiter.error is not None:
                    holdings.refused += isinstance(waiter.error, ConcurrencyLimited)
                    raise waiter.error
                if waiter.place is None:  # in a forked child
                    raise LimiterClosed("the process was forked while this caller waited")
        permit._place = waiter.place  # final, for nobody but this caller gives it up

    # The store

    def _new_name(self) -> str:
        """Return a name for a lease: no two of them share one."""
        return f"{self._instance}.{next(self._numbers)}"

    def _start(self) -> None:
        """Begin, unless it has begun. Requires the lock."""
        if self._thread is not None:
            return
        lender = self._lender
        if hasattr(lender, "listen"):
            lender.listen(self._instance, self.holdings.hear)
        elif hasattr(lender, "subscribe"):
            hear, look, knock = self.holdings.hear, self.holdings.look_at_all, lender.knock
            listener = Listener(lambda: lender.subscribe(self._instance), hear, look, lambda: self._knocked(knock))
            listener.start()
            self._listener = listener
        thread = threading.Thread(target=self._run, name="batchlimit-permits", daemon=True)
        thread.start()
        self._thread = thread

    def _knocked(self, knock: Callable[[str, str], None]) -> bool:
        """Have something published to this instance, if any key is in use; return whether it was."""
        with self.holdings.lock:
            used = next(iter(self.holdings), None)
        if used is None:
            return False
        key = stored(used.key)
        try:
            self.store.call(key, knock, key, self._instance)
        except StoreUnavailable:  # asks notice the same
            return False
        return True

    def abandon(self, place: Place) -> None:
        """Take back the place of a permit, as of one that is gone, soon: this may interrupt any code."""
        if (claim := place.claim) is not None:  # else it has ended
            self.gone(claim)
            self.holdings.wake.set()

    def close(self, seconds: float = 1.0) -> None:
        """Let nobody enter any more, and wait (s) until what is free went back; permits under way are kept."""
        with self.holdings.lock:
            self.is_closed = True
            used, is_running = list(self.holdings), self._thread is not None
            for slots in used:
                slots.close(LimiterClosed(CLOSED), self.clock())
                self.holdings.note(slots, self.clock())
        for slots in used:
            self.holdings.wake_all(slots)
        if is_running:
            self.holdings.wake.set()
            self._flushed.wait(seconds)
        else:
            self._end()

    def retire(self) -> None:
        """Close soon: for a limiter that was dropped unclosed. This may interrupt any call, and takes no lock."""
        self._is_retired = True
        self.holdings.wake.set()

    def _end(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        if forget := getattr(self._lender, "forget", None):
            forget(self._instance)
        self.store.stop()
        if self.owned is not None:
            self.owned.close()
        self._flushed.set()

    def _run(self) -> None:
        with self.holdings.lock:
            if self._has_begun:  # who started a thread before was interrupted then
                return
            self._has_begun = True
        while (due := self._due()) is not None:
            for slots in due:
                with self.holdings.lock:
                    sent = self.clock()
                    lost = slots.expire(sent)
                    self.holdings.lost += len(lost)
                    ask = None if self.holdings.drop(slots) else slots.ask(sent)
                for place in lost:
                    place.lose()
                if ask is not None:
                    self._ask(slots, ask, sent)
                    self.holdings.wake_all(slots)
            if not due:
                pause = (self.holdings.next() - self.clock()) / _SECOND
                self.holdings.wake.wait(max(0.0, pause))
        self._end()

    def _due(self) -> list[LocalSlots] | None:
        """Return the keys to ask about; None: all is over."""
        now = self.clock()
        if self._gone or now - self._swept >= _SECOND:
            self._swept = now
            self.holdings.left_behind([self._gone.popleft() for _ in range(len(self._gone))])
        if self._is_retired and not self.is_closed:
            self.close(0.0)
        with self.holdings.lock:
            due = self.holdings.due(self.clock())
            if self.is_closed and not due:
                if not self.holdings:
                    return None
                self._flushed.set()
        return due

    def _ask(self, slots: LocalSlots, ask: SlotAsk, sent: int) -> None:
        """Ask the store."""
        key = stored(slots.key)
        try:
            reply = self.store.call(key, self._lender.lend, key, ask)
        except Exception as error:  # noqa: BLE001  callers wait for this thread: it may not end by an error
            self._failed(slots, error if isinstance(error, StoreUnavailable) else unavailable(error))
            return
        with self.holdings.lock:
            now = self.clock()
            slots.answer(ask, reply, sent, now)
            if slots.line:
                slots.due = min(slots.due, now + uniform(*_LOOK) * _SECOND)
            self.holdings.asks += 1
            self.holdings.note(slots, now)
            self.holdings.drop(slots)

    def _failed(self, slots: LocalSlots, error: StoreUnavailable) -> None:
        """Note that an ask failed: while the store is away, the policy says how many permits may be under way here."""
        policy = self._policy_of(slots.key)
        with self.holdings.lock:
            now, admits = self.clock(), math.inf if policy.kind == "open" else 0
            instances = max(slots.reply.instances if slots.reply else 0, policy.instances or 0)
            if policy.kind == "local" and instances:
                admits = slots.limit // instances
            slots.fail(error, round(now + uniform(*_RETRY) * _SECOND), admits)
            self.holdings.note(slots, now)


live_engines: Forkables[Engine] = Forkables()


@atexit.register
def _close_all() -> None:
    if getpid() == forks.process:  # else all is of the parent, of which Python was not told
        for engine in live_engines:
            engine.close()
