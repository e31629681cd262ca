"""What happens under the lock of a gate: its changes, and its queue."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from batchlimit.base.steps import Steps
from batchlimit.base.waking import HEARTBEAT
from batchlimit.concurrency.gate import Gate, Reason
from batchlimit.concurrency.permit import HELD, OVER, WAITING, BasePermit
from batchlimit.concurrency.queue import GateWaiter
from batchlimit.concurrency.statistics import Counts
from batchlimit.errors import ConcurrencyLimited, LimiterClosed

CLOSED = "this concurrency limiter was closed"

T = TypeVar("T")
_SECOND = 1_000_000_000
_SOONEST = 0.001
"""Seconds until the queue is served again, at least: timers and clocks do not agree to the last digit."""


class CriticalSection:
    """Holds one gate, its lock and its queue, and lets one change happen at a time, within one thread too.

    The garbage collector and signal handlers may complete permits in the thread that holds the lock. So the lock is
    reentrant, and a change that is asked for during another one is deferred until after it.
    """

    def __init__(self, gate: Gate, counts: Counts, clock: Callable[[], int]) -> None:
        # Held to touch the gate, the law and the counts; never while a waiter is woken or a line is logged.
        self.lock = threading.RLock()
        self.gate, self.counts = gate, counts  # a forked child gets a gate of its own
        self.clock = clock  # ns, which never run backwards
        self.is_changing = False  # while the thread that holds the lock makes a change
        self.deferred: deque[Callable[[], None]] = deque()  # changes that were asked for during another one

    def do(self, action: Callable[[], T]) -> T:
        """Return what an action returns that has the lock; every other change, of this thread too, comes after it."""
        # No context manager: one that a signal handler interrupts keeps the lock for as long as the traceback lives.
        nested = True
        try:
            with self.lock:
                nested, self.is_changing = self.is_changing, True
                try:
                    return action()
                finally:
                    self.is_changing = nested
        finally:
            if not nested:
                self.run_deferred()

    def change(self, change: Callable[[], object]) -> None:
        """Make a change, or defer it if this thread is making another one; wake who was served or sent away."""
        with self.lock:
            if self.is_changing:
                self.deferred.append(partial(self.change, change))
                return
        try:
            self.do(change)
        finally:
            self.wake()

    def run_deferred(self) -> None:
        """Make the changes that were deferred, by this thread or another one."""
        with suppress(IndexError):
            while True:
                self.deferred.popleft()()

    def wake(self) -> None:
        """Wake who is unwoken; one that cannot be woken gives its place to the next. Requires that the lock is free."""
        # A loop instead of recursion: thousands may wait, one behind the other, on an event loop that was closed.
        unwoken = self.gate.unwoken
        while waiters := list(unwoken):
            for waiter in waiters:
                try:
                    waiter.wake()
                except RuntimeError:  # its event loop is closed
                    self.do(partial(self._take_back, waiter))
                unwoken.pop(waiter, None)

    def _take_back(self, waiter: GateWaiter) -> None:
        if waiter.served and waiter.gate is self.gate:
            waiter.served = False
            self.gate.leave(waiter.partition, self.clock())
            waiter.marker = None

    # Its queue

    def waiting(
        self, permit: BasePermit, waiter: GateWaiter, partition: str, wait: Callable[[], object]
    ) -> Steps[None]:
        """Wait, as a thread or a task does; end with the permit held, or raise why it is not."""
        try:
            self.join_queue(waiter, partition)
            yield wait()
            if not self.leave_queue(permit, waiter):
                raise self.in_vain(waiter)
        except BaseException:
            if self.leave_queue(permit, waiter):
                permit.ignore()
            if permit._state is WAITING:
                permit._state = OVER
            raise

    def join_queue(self, waiter: GateWaiter, partition: str) -> None:
        """Begin to wait, or raise why not; any thread calls `wake`, once; RuntimeError says that nobody is there."""
        self.do(lambda: self._join(waiter, partition))
        self.wake()

    def _join(self, waiter: GateWaiter, partition: str) -> None:
        gate = self.gate
        if gate.is_closed:
            raise LimiterClosed(CLOSED)
        place = gate.partition(partition)
        if reason := gate.line_up(place, waiter):
            raise self.counts.refusal(gate, place, reason, self.clock())
        waiter.since_ns = now = self.clock()
        gate.serve(now)

    def leave_queue(self, permit: BasePermit, waiter: GateWaiter) -> bool:
        """Wait no longer; return whether the permit is held now. A second time it changes nothing."""
        is_held = self.do(lambda: self._leave(permit, waiter))
        if (gate := self.gate).behind:
            self.change(lambda: gate.serve(self.clock()))
        return is_held

    def _leave(self, permit: BasePermit, waiter: GateWaiter) -> bool:
        if permit._state is HELD or waiter.gate is not self.gate:  # the gate of this process's parent
            return permit._state is HELD
        if waiter.since_ns is not None:
            self.counts.waited(self.clock() - waiter.since_ns)
            waiter.since_ns = None
        if is_held := not self.gate.give_up(waiter):
            permit._gate, permit._place = self.gate, waiter.partition
            permit.start_ns, permit._in_flight = waiter.start_ns, waiter.in_flight
            permit._marker, waiter.marker = waiter.marker, None
            waiter.served = False  # it is the permit now that is under way
            permit._state = HELD
        return is_held

    def in_vain(self, waiter: GateWaiter) -> ConcurrencyLimited | LimiterClosed:
        """Count the refusal of a caller that waited in vain; return the error to raise."""
        if self.gate.is_closed:
            return LimiterClosed(CLOSED)
        reason: Reason = "queue_full" if waiter.displaced else "queue_timeout"
        return self.do(lambda: self.counts.refusal(self.gate, waiter.partition, reason, self.clock()))

    def catch_up(self) -> None:
        """Serve, and do what interrupts left undone: take back places, and wake who is not woken yet."""
        self.change(self._left_behind)
        while not self.is_changing and any(each.lost > 0 for each in self.gate.partitions):
            self.change(self._left_behind)  # places of waiters that nobody else knew

    def _left_behind(self) -> None:
        self.gate.reclaim(self.counts)
        self.gate.serve(self.clock())

    def pause(self) -> float:
        """Return after how many seconds a waiter is to `catch_up`: time alone frees places that strict shares kept."""
        gate = self.gate
        if not gate.is_strict:
            return HEARTBEAT
        return min(HEARTBEAT, max(_SOONEST, gate.lent_in(self.clock(), _SECOND) / _SECOND))
