"""What wakes a thread in line."""

from threading import Lock


class Waker:
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
