"""A thread's turn to enter: a lock that any thread may release."""

from threading import TIMEOUT_MAX, Lock


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
