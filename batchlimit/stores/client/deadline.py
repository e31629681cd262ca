"""How long a call may take, told to all that it calls: in a thread by `hurry`, in a task by `unhurried`."""

import threading
import time
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol

_STALE = 1.0
"""A hurry that ended so many seconds ago was left behind by an interrupt: nobody is in it any more."""


class NotPrompt(Exception):
    """There may be an answer, but not within the hurry: it would take a new connection. Nothing was sent."""


class _Told(threading.local):
    until: float | None = None


_told = _Told()


class _Hurry:
    """See `hurry`. A class, for a generator would take several times as long, and every ask pays it."""

    __slots__ = ("_until",)

    def __init__(self, until: float) -> None:
        self._until = until

    def __enter__(self) -> None:
        _told.until = self._until

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _told.until = None


def hurry(until: float) -> _Hurry:
    """Within this block, in this thread, a prompt store ends each call before time.monotonic() is at `until`.

    It answers or raises StoreUnavailable by then; or raises NotPrompt, at once, where it would have to connect first.
    Blocks are not nested.
    """
    return _Hurry(until)


def hurrying() -> float | None:
    """Return the instant by which this thread's call must be over; None: there is no hurry."""
    until = _told.until
    return None if until is None or until + _STALE < time.monotonic() else until


class Watch(Protocol):
    """What measures how long a task's call has been with the server."""

    def pause(self) -> None:
        """The call waits for a connection, or makes one."""
        ...

    def resume(self) -> None:
        """It has one: from here on it is the server that takes its time."""
        ...


WATCH: ContextVar[Watch | None] = ContextVar("batchlimit_watch", default=None)
"""The watch of the call that this task is in."""


class Unhurried:
    """`with Unhurried():` the time that passes is not the server's."""

    __slots__ = ("_watch",)

    def __enter__(self) -> None:
        self._watch = WATCH.get()
        if self._watch is not None:
            self._watch.pause()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.resume()
