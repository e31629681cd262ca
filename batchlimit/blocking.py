"""What wakes a thread in line."""

import asyncio
from threading import TIMEOUT_MAX, Lock

from batchlimit.caution import caution


class Event:
    """Something to wait on for one thread, that any thread may set: half of an Event, for a fifth of its time.

    Whoever waited has used up what was set; so nobody has to clear it before a look, and what is set between a look and
    the wait is not missed.
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

    def wait(self, seconds: float) -> None:
        """Wait until it is set, so many seconds at most."""
        self._lock.acquire(timeout=seconds)


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


class Turn:
    """What a thread waits for.

    Not an Event: that has a lock of its own, on which the garbage collector would wait for ever if it ran amid the
    wait and freed the very place that is waited for. To release a bare lock takes one step.
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
