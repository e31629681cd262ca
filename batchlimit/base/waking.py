"""What wakes a thread that waits, or a task that waits in line with threads; and a few tasks at a time."""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable
from contextvars import Context
from threading import TIMEOUT_MAX, Lock

HEARTBEAT = 1.0
"""A waiter looks again after so many seconds though nobody woke it: that thread may have been interrupted."""


class Event:
    """Something to wait on for one thread, that any thread may set: half of an Event, for a fifth of its time.

    A wait uses up what was set. So nobody has to clear it before a look, and the wait does not miss what is set between
    the two.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def set(self) -> None:
        """End the wait, or the next one."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it is set already

    def wait(self, seconds: float | None) -> bool:
        """Return whether it was set, after so many seconds at most, and no more than a heartbeat."""
        return self._lock.acquire(timeout=HEARTBEAT if seconds is None else min(seconds, HEARTBEAT))

    def over(self) -> None:
        """Nobody waits any more; the testing kit, whose clock goes on when all wait, has to know."""


class TaskEvent:
    """Wakes a task, from any thread."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the task; if its loop was closed meanwhile, do nothing."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, seconds: float | None) -> None:
        """Wait until it is set, so many seconds at most; None: until then, or for a heartbeat."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT if seconds is None else min(seconds, HEARTBEAT)):
                await self._event.wait()

    def over(self) -> None:
        """As of an Event."""


class ThreadWakeup(Event):
    """What a thread waits for at a concurrency limiter.

    Not that of `threading`, which has a lock of its own. If the garbage collector ran during the wait and freed the
    very place that is waited for, it would wait for that lock for ever. To release a bare lock takes one step.
    """

    __slots__ = ()
    wake = Event.set
    """Ends the wait; a second time it changes nothing."""

    def wait(self, seconds: float | None) -> bool:
        """Return whether it was woken, after so many seconds at most."""
        return self._lock.acquire(timeout=TIMEOUT_MAX if seconds is None else min(seconds, TIMEOUT_MAX))


AT_ONCE = 64
"""So many are done in one turn of the loop: to look after a waiter takes up to 40 us, a task that wakes 20 and more."""


class RoundRobin:
    """Does things in the order in which they come, AT_ONCE of them in one turn of the loop; the rest in the next turns.

    A loop that is closed turns no more: what is left then is not done. One in which a signal handler raised may have
    forgotten the next turn: it is planned anew with what comes a second later.
    """

    __slots__ = ("_left", "_loop", "_lost_at", "_room")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left: deque[Callable[[], object]] = deque()
        self._room = AT_ONCE  # how many more may be done until the next turn begins
        self._lost_at = math.inf  # by the time of the loop, while none are: when it should have begun for long

    def do(self, *work: Callable[[], object]) -> None:
        """Do this now, or in a turn soon, if much was done in this one."""
        self._left.extend(work)
        if not self._room and self._lost_at < self._loop.time():
            self.begin()
        self._go_on()

    def _go_on(self) -> None:
        while self._left and self._room:
            if self._room == 1 and not self._loop.is_closed():  # first: who is interrupted leaves the rest to others
                self._loop.call_soon(self.begin, context=Context())
                self._lost_at = self._loop.time() + HEARTBEAT
            self._room -= 1
            self._left.popleft()()

    def begin(self) -> None:
        self._room = AT_ONCE
        self._go_on()
