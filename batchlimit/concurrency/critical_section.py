"""The lock of a gate, and the changes that wait until the change under way is complete."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from batchlimit.concurrency.gate import Gate
from batchlimit.concurrency.queue import GateWaiter

T = TypeVar("T")


class CriticalSection:
    """Holds one gate and its lock, and lets one change happen at a time, within one thread too.

    The garbage collector and signal handlers run in any thread, also in the one that holds the lock, and may complete
    permits there. So the lock is reentrant, and a change that is asked for during another one is deferred until after
    it.

    Attributes:
        lock: Held to touch the gate, the law and the counts; never while a waiter is woken or a line is logged.
        gate: The gate of this process. A forked child gets a gate of its own.
        clock: Returns ns; never runs backwards.
        is_changing: True while the thread that holds the lock makes a change.
        deferred: The changes that were asked for during another one.
    """

    __slots__ = ("clock", "deferred", "gate", "is_changing", "lock")

    def __init__(self, gate: Gate, clock: Callable[[], int]) -> None:
        self.lock = threading.RLock()
        self.gate = gate
        self.clock = clock
        self.is_changing = False
        self.deferred: deque[Callable[[], None]] = deque()

    def do(self, action: Callable[[], T]) -> T:
        """Return what an action returns that has the lock; every other change, of this thread too, comes after it.

        It is no context manager: a signal handler that raised within that, before or after the block, would keep the
        lock for as long as somebody keeps the traceback.
        """
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
        try:
            while True:
                self.deferred.popleft()()
        except IndexError:
            pass

    def wake(self, served: Sequence[GateWaiter]) -> None:
        """Wake these waiters; one that cannot be woken gives its place to the next. Requires that the lock is free."""
        # A loop instead of recursion: thousands may wait, one behind the other, on an event loop that was closed.
        served = list(served)
        for waiter in served:
            try:
                waiter.wake()
            except RuntimeError:  # its event loop is closed
                self._make(partial(self._take_back, waiter), served)
            self.gate.leaving.pop(waiter, None)

    def _take_back(self, waiter: GateWaiter) -> Sequence[GateWaiter]:
        is_ours = waiter.served and waiter.gate is self.gate
        return self.gate.take_back(waiter, self.clock()) if is_ours else ()

    def restart(self, gate: Gate) -> None:
        """Begin anew with this gate in a forked child: threads of the parent may have held the lock."""
        self.lock, self.is_changing = threading.RLock(), False
        self.gate = gate
        self.deferred.clear()
