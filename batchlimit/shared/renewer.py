"""The threads that ask the store about the slots of all keys of one instance, and hear what it tells unasked."""

import atexit
import itertools
import logging
import math
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from random import uniform
from typing import Any

from batchlimit.bucket.slot_table import SlotAsk, SlotPush
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.events import log_event
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.key import stored
from batchlimit.shared.held_slots import Claim, Place, SlotWaiter
from batchlimit.shared.holdings import Holdings
from batchlimit.shared.local_slots import LocalSlots
from batchlimit.stores.outage import unavailable
from batchlimit.stores.protocols import Store
from batchlimit.sync.guarded_store import GuardedStore

CLOSED = "this concurrency limiter was closed"

_SECOND = 1_000_000_000
_LOOK = (0.5, 1.0)
"""Seconds after which an instance that waits asks again, at least and at most: a push may have been lost."""
_RETRY = (0.05, 0.15)
"""Seconds after a failed ask until the next one; none is sent while the circuit breaker is open."""
FLUSH = 1.0
"""Seconds that `close` waits until the store has back what is free."""


_READ = 1.0
"""Seconds of silence after which a listener looks whether it is to end, and whether its subscription is alive."""
_SHORT = 0.02
"""A subscription that failed after fewer seconds is not tried again at once."""
_PAUSE = (0.5, 1.0)
"""Seconds before it is, at least and at most."""
_LONG = 60.0
"""The log tells of a failure after so many seconds without one; of others at the level DEBUG."""


class Listener(threading.Thread):
    """Reads a subscription until `stop`. While it is away waiters look by themselves, which takes time."""

    def __init__(
        self,
        subscribe: Callable[[], Any],
        receive: Callable[[str, SlotPush], None],
        back: Callable[[], None],
        knock: Callable[[], bool],
    ) -> None:
        super().__init__(name="batchlimit-listener", daemon=True)
        self._subscribe, self._receive = subscribe, receive
        self._back = back  # called after each subscription, for pushes before it were lost
        self._knock = knock  # has a push published to this instance, if it returns True
        self._silenced = threading.Event()

    def stop(self) -> None:
        """End within a second."""
        self._silenced.set()

    def run(self) -> None:
        """Read one subscription after the other."""
        failed = -_LONG
        while not self._silenced.is_set():
            began = time.monotonic()
            try:
                self._read(self._subscribe())
            except Exception as error:  # noqa: BLE001  whatever it is: the next subscription may work
                if self._silenced.is_set():  # whoever closes the store ends it
                    return
                now, before, failed = time.monotonic(), failed, time.monotonic()
                level = logging.INFO if now - before >= _LONG else logging.DEBUG
                message = "no pushes from the store; who waits looks by itself: %s"
                log_event("store.no_pushes", message, error, level=level, reason=str(error))
                if now - began < _SHORT:
                    self._silenced.wait(uniform(*_PAUSE))

    def _read(self, pushes: Any) -> None:
        try:
            pushes.open()
            self._back()
            has_knocked = False
            while not self._silenced.is_set():
                if push := pushes.read(_READ):
                    self._receive(*push)
                elif has_knocked:
                    raise TimeoutError(f"the subscription did not hear within {_READ:g} s what was published to it")
                has_knocked = push is None and self._knock()
        finally:
            pushes.close()


class LeaseRenewer:
    """Asks the store in a thread of its own, hears its pushes, and wakes who waits. A forked child has another one.

    The thread renews leases too: an event loop that is busy for seconds, or a caller's thread, keeps its slots.
    """

    def __init__(
        self, store: GuardedStore, lender: Any, policy_of: Callable[[str], FailurePolicy], clock: Callable[[], int]
    ) -> None:
        # The lender raises StoreUnavailable if there is no answer; any ask may be repeated.
        self._store, self._lender, self._policy_of, self._clock = store, lender, policy_of, clock
        name = getattr(lender, "name", lambda key: key)  # no str() of it: that would be the label of an enum
        self.holdings = Holdings(lambda key: name(stored(key)), clock)
        self.owned: Store | None = None  # the store, if the limiter opened it: it is closed in the end
        self.is_closed = self._is_retired = self._has_begun = False
        self._instance, self._numbers = secrets.token_hex(8), itertools.count(1)
        self._abandoned: deque[tuple[str, Place]] = deque()
        self._gone, self._swept = deque[Claim](), 0
        self.gone: Callable[[Claim], None] = self._gone.append  # C code, which no signal interrupts
        self._flushed = threading.Event()
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None
        self.process = os.getpid()
        _living.add(self)

    def new_name(self) -> str:
        """Return a name for a lease: no two of them share one."""
        return f"{self._instance}.{next(self._numbers)}"

    def start(self) -> None:
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
            self._store.call(key, knock, key, self._instance)
        except StoreUnavailable:  # asks notice the same
            return False
        return True

    def abandon(self, key: str, place: Place) -> None:
        """Take back the place of a permit that the garbage collector found, soon: this may interrupt any code."""
        self._abandoned.append((key, place))
        self.holdings.wake.set()

    def close(self, seconds: float = FLUSH) -> None:
        """Let nobody enter any more, and give back what is free; permits under way are kept until they end."""
        with self.holdings.lock:
            self.is_closed = True
            woken = [(slots, slots.close(LimiterClosed(CLOSED), self._clock())) for slots in self.holdings]
            for slots, _ in woken:
                self.holdings.note(slots, self._clock())
            is_running = self._thread is not None
        for slots, waiters in woken:
            self.holdings.wake_all(slots, waiters)
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
        self._store.stop()
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
                    sent = self._clock()
                    lost = slots.expire(sent)
                    self.holdings.lost += len(lost)
                    ask = None if self.holdings.drop(slots) else slots.ask(sent)
                for place in lost:
                    place.lose()
                if ask is not None:
                    self.holdings.wake_all(slots, self._answered(slots, ask, sent))
            if not due:
                pause = (self.holdings.next() - self._clock()) / _SECOND
                self.holdings.wake.wait(max(0.0, pause))
        self._end()

    def _due(self) -> list[LocalSlots] | None:
        """Return the keys to ask about; None: all is over."""
        while self._abandoned:
            self.holdings.leave(*self._abandoned.popleft())
        now = self._clock()
        if self._gone or now - self._swept >= _SECOND:
            self._swept = now
            self.holdings.left_behind([self._gone.popleft() for _ in range(len(self._gone))])
        if self._is_retired and not self.is_closed:
            self.close(0.0)
        with self.holdings.lock:
            due = self.holdings.due(self._clock())
            if self.is_closed and not due:
                if not self.holdings:
                    return None
                self._flushed.set()
        return due

    def _answered(self, slots: LocalSlots, ask: SlotAsk, sent: int) -> Sequence[SlotWaiter]:
        """Ask the store; return the waiters to be woken."""
        key = stored(slots.key)
        try:
            reply = self._store.call(key, self._lender.lend, key, ask)
        except Exception as error:  # noqa: BLE001  callers wait for this thread: it may not end by an error
            return self._failed(slots, error if isinstance(error, StoreUnavailable) else unavailable(error))
        with self.holdings.lock:
            now = self._clock()
            woken = slots.answer(ask, reply, sent, now)
            if slots.line:
                slots.due = min(slots.due, now + uniform(*_LOOK) * _SECOND)
            self.holdings.asks += 1
            self.holdings.note(slots, now)
            self.holdings.drop(slots)
        return woken

    def _failed(self, slots: LocalSlots, error: StoreUnavailable) -> Sequence[SlotWaiter]:
        """Note that an ask failed: while the store is away, the policy says how many permits may be under way here."""
        policy = self._policy_of(slots.key)
        with self.holdings.lock:
            now, admits = self._clock(), math.inf if policy.kind == "open" else 0
            instances = max(slots.reply.instances if slots.reply else 0, policy.instances or 0)
            if policy.kind == "local" and instances:
                admits = slots.limit // instances
            woken = slots.fail(error, round(now + uniform(*_RETRY) * _SECOND), admits)
            self.holdings.note(slots, now)
        return woken


_living: "weakref.WeakSet[LeaseRenewer]" = weakref.WeakSet()
"""Every LeaseRenewer of the process, also of limiters that were dropped, and those that a forked child inherited."""


@atexit.register
def _close_all() -> None:
    for renewer in list(_living):
        if renewer.process == os.getpid():
            renewer.close()
