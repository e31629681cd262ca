"""Callers that wait at a gate without a thread or a task of their own: they are called back."""

import heapq
import itertools
import threading
from collections.abc import Callable

from batchlimit.base.forks import Forkables
from batchlimit.concurrency.locked_gate import LockedGate
from batchlimit.concurrency.permit import Permit
from batchlimit.concurrency.queue import GateWaiter
from batchlimit.errors import ConcurrencyLimited, LimiterClosed
from batchlimit.events import log_event

Admitted = Callable[[Permit], object]
"""Called with the permit, held, by the thread that made room."""
Refused = Callable[[ConcurrencyLimited | LimiterClosed], object]
"""Called with the reason, in a background thread."""

_SECOND = 1_000_000_000
_FEW = 64
"""So many callers that wait no longer are kept in the list of deadlines before they are looked for."""


class Caller(GateWaiter):
    """One caller that waits; it is called back once."""

    __slots__ = ("_deadlines", "_permit", "back", "locked_gate")

    def __init__(self, permit: Permit, deadlines: "Deadlines", back: tuple[Admitted, Refused]) -> None:
        super().__init__(self._woken, permit.priority)
        self.locked_gate, self._permit, self._deadlines = permit._locked_gate, permit, deadlines
        self.back = [back]  # whoever pops it calls back; empty: the wait is over

    def _woken(self) -> None:
        """It was served, or displaced, or the limiter was closed; in any thread, which may do something urgent."""
        if self.served:
            self.settle()
        else:
            self._deadlines.add(self, 0)

    def settle(self) -> None:
        """Wait no longer, and call back; a second time it changes nothing."""
        try:
            admitted, refused = self.back.pop()
        except IndexError:
            return
        is_held = self.locked_gate.leave_queue(self._permit, self)
        try:
            if not is_held:
                refused(self.locked_gate.in_vain(self))
                return
            if self._permit._sheddable:
                self._permit._expose()
            admitted(self._permit)
        except Exception as error:  # noqa: BLE001  this thread has work of its own
            if is_held:
                self._permit.ignore()
            log_event("permit.callback_failed", "a call that waited for a permit could not be called back", error=error)


class Deadlines:
    """Ends waits whose time is over, in a background thread that ends within a second of the last wait."""

    __slots__ = ("__weakref__", "_bell", "_clock", "_is_running", "_lock", "_most", "_numbers", "_waiting")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.after_fork()
        _living.add(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # reentrant, for the garbage collector may complete a permit anywhere
        self._bell = threading.Condition(self._lock)  # entered by the lock, which is written in C: see blocking
        self._waiting: list[tuple[float, int, Caller]] = []
        self._numbers = itertools.count()
        self._most = _FEW
        self._is_running = False

    def admit(self, permit: Permit, partition: str, wait: float, back: tuple[Admitted, Refused]) -> Permit | None:
        """Return the permit, held, if there is room; else raise, or call back: when there is room, or too late."""
        if not (seconds := permit._enter(partition, wait)):
            if permit._sheddable:
                permit._expose()
            return permit
        caller = Caller(permit, self, back)
        permit._locked_gate.join_queue(caller, partition)
        self.add(caller, self._clock() + seconds * _SECOND)
        return None

    def add(self, caller: Caller, at: float) -> None:
        """End the wait of a caller at this time (ns), unless it is over by then."""
        with self._lock:
            heapq.heappush(self._waiting, (at, next(self._numbers), caller))
            if len(self._waiting) > self._most:
                self._waiting = [each for each in self._waiting if each[2].back]
                heapq.heapify(self._waiting)
                self._most = 2 * len(self._waiting) + _FEW
            self._bell.notify()
            if self._is_running:
                return
        try:
            threading.Thread(target=self._run, name="batchlimit-deadlines", daemon=True).start()
        except RuntimeError:  # no thread can be had: nobody would ever end this wait
            caller.settle()

    def _run(self) -> None:
        with self._lock:
            if self._is_running:
                return
            self._is_running = True
        while True:
            with self._lock:
                gates = self._gates()
                if not gates:
                    self._is_running = False
                    return
                now, due = self._clock(), list[Caller]()
                while self._waiting and self._waiting[0][0] <= now:
                    due.append(heapq.heappop(self._waiting)[2])
            for gate in gates:
                gate.catch_up()
            for caller in due:
                caller.settle()

    def _gates(self) -> set[LockedGate]:
        """Wait until there is something to do, and return at which gates to look; none if nobody waits."""
        while self._waiting and not self._waiting[0][2].back:
            heapq.heappop(self._waiting)
        if not self._waiting:
            return set()
        at, _, first = self._waiting[0]
        seconds = min((at - self._clock()) / _SECOND, first.locked_gate.pause())
        if seconds > 0 and self._bell.wait(seconds):
            return {first.locked_gate}
        return {each.locked_gate for _, _, each in self._waiting}


_living: Forkables[Deadlines] = Forkables()
"""All of this process."""
