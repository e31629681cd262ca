"""What happens under the lock of a gate: its changes, its limit, its queue, and what may be told to give up."""

import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from batchlimit.base.setting import whole
from batchlimit.base.waking import HEARTBEAT
from batchlimit.concurrency.gate import Gate, Reason
from batchlimit.concurrency.law import Calibrated, Law, state_of
from batchlimit.concurrency.laws.simple import Settable, Watched
from batchlimit.concurrency.permit import HELD, BasePermit
from batchlimit.concurrency.queue import GateWaiter
from batchlimit.concurrency.statistics import Counts
from batchlimit.errors import ConcurrencyLimited, LimiterClosed
from batchlimit.events import log_event

CLOSED = "this concurrency limiter was closed"

T = TypeVar("T")
_SECOND = 1_000_000_000
_SOONEST = 0.001
"""Seconds until the queue is served again, at least: timers and clocks do not agree to the last digit."""
Changed = Callable[..., object]
"""Called when the limit has changed, with the limit before and after; and why, where that is asked for."""


class CriticalSection:
    """Holds one gate, its lock and its queue, and lets one change happen at a time, within one thread too.

    The garbage collector and signal handlers may complete permits in the thread that holds the lock. So the lock is
    reentrant, and a change that is asked for during another one is deferred until after it.
    """

    __slots__ = ("clock", "counts", "deferred", "gate", "is_changing", "lock")

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

    def change(self, change: Callable[[], Sequence[GateWaiter]]) -> None:
        """Make a change, or defer it if this thread is making another one; wake the waiters that it served."""
        served: list[GateWaiter] = []
        try:
            self._make(change, served)
        finally:
            self.wake(served)

    def _make(self, change: Callable[[], Sequence[GateWaiter]], served: list[GateWaiter]) -> None:
        with self.lock:
            if self.is_changing:
                self.deferred.append(partial(self.change, change))
                return
        self.do(lambda: served.extend(change()))

    def run_deferred(self) -> None:
        """Make the changes that were deferred, by this thread or another one."""
        with suppress(IndexError):
            while True:
                self.deferred.popleft()()

    def wake(self, served: Sequence[GateWaiter]) -> None:
        """Wake these waiters; one that cannot be woken gives its place to the next. Requires that the lock is free."""
        # A loop instead of recursion: thousands may wait, one behind the other, on an event loop that was closed.
        served = list(served)
        for waiter in served:
            try:
                waiter.wake()
            except RuntimeError:  # its event loop is closed
                self._make(partial(self._take_back, waiter), served)
            self.gate.unwoken.pop(waiter, None)

    def _take_back(self, waiter: GateWaiter) -> Sequence[GateWaiter]:
        if not waiter.served or waiter.gate is not self.gate:
            return ()
        waiter.served = False
        served = self.gate.leave(waiter.partition, self.clock())
        waiter.marker = None
        return served

    # Its queue

    def join_queue(self, waiter: GateWaiter, partition: str) -> None:
        """Begin to wait, or raise why not; any thread calls `wake`, once; RuntimeError says that nobody is there."""
        whole("the priority of what may wait", waiter.priority, -math.inf, math.inf)
        self.wake(self.do(lambda: self._join(waiter, partition)))

    def _join(self, waiter: GateWaiter, partition: str) -> Sequence[GateWaiter]:
        gate = self.gate
        if gate.is_closed:
            raise LimiterClosed(CLOSED)
        displaced = gate.make_room(waiter.priority)
        if reason := gate.line_up(gate.partitions.of(partition), waiter):
            raise self.counts.refusal(gate, reason, self.clock())
        now = waiter.since_ns = self.clock()
        return [*displaced, *gate.serve(now)]

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
            permit._hold(self.gate, waiter)
        return is_held

    def in_vain(self, waiter: GateWaiter) -> ConcurrencyLimited | LimiterClosed:
        """Count the refusal of a caller that waited in vain; return the error to raise."""
        if self.gate.is_closed:
            return LimiterClosed(CLOSED)
        reason: Reason = "queue_full" if waiter.displaced else "queue_timeout"
        return self.do(lambda: self.counts.refusal(self.gate, reason, self.clock()))

    def catch_up(self) -> None:
        """Serve, and do what interrupts left undone: take back places, and wake who is not woken yet."""
        self.change(self._left_behind)
        while self.gate.has_lost and not self.is_changing:  # of waiters that nobody else knew
            self.change(self._left_behind)

    def _left_behind(self) -> Sequence[GateWaiter]:
        self.reclaim()
        self.gate.serve(self.clock())
        return [*self.gate.unwoken]

    def reclaim(self) -> int:
        """Take back places of permits that are no more; return how many. `catch_up` wakes the served. In the lock."""
        gate, counts = self.gate, self.counts
        if lost := gate.reclaim():
            counts.abandoned += lost
            counts.ignored += lost
            gate.serve(self.clock())
        return lost

    def pause(self) -> float:
        """Return after how many seconds a waiter is to `catch_up`: time alone frees places that strict shares kept."""
        partitions = self.gate.partitions
        if not partitions.is_strict:
            return HEARTBEAT
        return min(HEARTBEAT, max(_SOONEST, partitions.lent_in(self.clock(), _SECOND) / _SECOND))


def checked(limit: int) -> int:
    """Return a limit that a law gave, raised to 1 if it is lower; TypeError if it is no whole number."""
    if limit.__class__ is not int:
        raise TypeError(f"a law must give a whole number of calls, not {limit!r}")
    return limit if limit > 0 else 1


class LimitControl:
    """Sets the limit of a gate: when a call ended, somebody set that of its law, or the watchers end a period."""

    __slots__ = ("_has_failed", "_listeners", "_section", "law")

    def __init__(self, section: CriticalSection, law: Law) -> None:
        self._section, self.law = section, law
        self._has_failed = False
        self._listeners: tuple[tuple[Changed, bool], ...] = ()
        if isinstance(setting := law.law if isinstance(law, Watched) else law, Settable):
            setting.listen(lambda: self._resize(lambda now: self.law.limit, "operator"))

    def listen(self, changed: Changed, why: bool) -> None:
        """Call a function after each change of the limit, without the lock; with the reason, if it asks why."""
        with self._section.lock:
            self._listeners += ((changed, why),)

    def take_over(self, limit: int, now: int, why: str = "", *, dropped: bool = False) -> Sequence[GateWaiter]:
        """Set a limit that the law gave; return the waiters that were served. Requires the lock."""
        gate, limit = self._section.gate, checked(limit)
        if (before := gate.limit) == limit:
            return ()
        by_call = "room" if limit > before else "loss" if dropped else "late"  # what the call says, if the law does not
        why = why or state_of(self.law).why or by_call
        served = gate.resize(limit, now, why)
        if listeners := self._listeners:
            self._section.deferred.append(lambda: self._tell(listeners, before, limit, why))
        return served

    @staticmethod
    def _tell(listeners: Sequence[tuple[Changed, bool]], before: int, after: int, why: str) -> None:
        for changed, asks_why in listeners:
            try:
                changed(before, after, *([why] if asks_why else ()))
            except Exception as error:  # noqa: BLE001  the caller has done its work, and cannot help it
                log_event("limit.listener_failed", "%r failed at a change of the limit", changed, error=error)

    def calibrate(self, events: Sequence[str]) -> None:
        """Tell the law what the watchers saw in a period; take over its limit."""
        law = self.law
        assert isinstance(law, Calibrated)
        self._resize(lambda now: law.calibrate(events, now), "watchers")

    def _resize(self, limit: Callable[[int], int], why: str) -> None:
        section = self._section
        section.change(lambda: self.take_over(limit(now := section.clock()), now, why))

    def report(self, error: Exception) -> None:
        """Log that the law failed: the first time as an error, then for debugging, since it may fail at each call."""
        level, self._has_failed = logging.DEBUG if self._has_failed else logging.ERROR, True
        log_event("law.failed", "%r failed; the limit stays", self.law, error=error, level=level, law=repr(self.law))


class SheddablePermits:
    """Holds the sheddable permits under way, weakly, and tells some of them to give up."""

    __slots__ = ("_section", "permits")

    def __init__(self, section: CriticalSection) -> None:
        self._section = section
        self.permits: weakref.WeakSet[BasePermit] = weakref.WeakSet()  # touched under the lock

    def excess(self) -> int:
        """Return how many more calls are under way than the limit lets, without those that were told to give up."""
        gate = self._section.gate
        is_ending = (each._state is HELD and each.shed for each in self.permits)
        return self._section.do(lambda: gate.in_flight - gate.limit - sum(is_ending))

    def add(self, permit: BasePermit) -> None:
        """Let a permit be shed for as long as it is held."""
        permit._is_shed = False
        self._section.do(lambda: self.permits.update([permit] if permit._state is HELD else []))

    def calls(self) -> list[BasePermit]:
        """Return the permits that were not told to give up yet."""
        return self._section.do(lambda: [each for each in self.permits if each._state is HELD and not each.shed])

    def end(self, chosen: Sequence[BasePermit]) -> None:
        """Tell those of these permits to give up that are of this gate and were not told yet."""
        for permit in self._section.do(lambda: self._tell(chosen)):
            with suppress(RuntimeError):  # its event loop is closed: no task is in its block any more
                permit._give_up()

    def _tell(self, chosen: Sequence[BasePermit]) -> list[BasePermit]:
        left = set(self.calls())
        told = [permit for permit in chosen if permit in left]
        self._section.counts.shed += len(told)
        for permit in told:
            permit._is_shed = True
        return told
