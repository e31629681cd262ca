"""What wakes a thread in line, or a task that waits in line with threads."""

import asyncio
import contextlib
from threading import TIMEOUT_MAX, Lock
from time import sleep

from batchlimit.caution import caution

HEARTBEAT = 1.0
"""A waiter looks again after so many seconds though nobody woke it: that thread may have been interrupted."""

_MOMENT = 1e-4
"""Seconds: to sleep for no time at all hands the interpreter to nobody."""


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

    def wait(self, seconds: float | None) -> None:
        """Wait until it is set, so many seconds at most; None: until then, or for a heartbeat."""
        self._lock.acquire(timeout=HEARTBEAT if seconds is None else min(seconds, HEARTBEAT))

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
        """Forget that it was set."""
        self._event.clear()

    async def wait(self, seconds: float | None) -> None:
        """Wait until it is set, so many seconds at most; None: until then, or for a heartbeat."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT if seconds is None else min(seconds, HEARTBEAT)):
                await self._event.wait()

    def over(self) -> None:
        """As of an Event."""


_MESSAGE = (
    "a RateLimiter is about to block the event loop that runs here, with all of its tasks: "
    "use an AsyncRateLimiter, or call it in a thread"
)
_warned = False


def warn_in_loop() -> None:
    """Warn, once a process, whoever is about to block a running event loop; in asyncio's debug mode alone.

    Called where a call leaves the memory: what is answered from it blocks nobody.
    """
    global _warned  # noqa: PLW0603  that is what "once" means
    # get_running_loop() raises where there is none: that takes ten times as long, at every miss.
    if _warned or (loop := asyncio._get_running_loop()) is None or not loop.get_debug():
        return
    _warned = True
    caution(_MESSAGE, RuntimeWarning)


def give_way() -> None:
    """Let other threads run for a moment during a long count; not on an event loop, which would stop for longer."""
    if asyncio._get_running_loop() is None:
        sleep(_MOMENT)


class Turn:
    """What a thread waits for.

    Not an Event, which has a lock of its own. If the garbage collector ran during the wait and freed the very place
    that is waited for, it would wait for that lock for ever. To release a bare lock takes one step.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """End the wait, once."""
        self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Return whether it was woken, after so many seconds at most."""
        return self._lock.acquire(timeout=min(seconds, TIMEOUT_MAX))
