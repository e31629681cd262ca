"""How long a call may take, known to everything that it calls.

A thread sets an instant with `deadline_scope`. A task has a Watch, which `WatchPaused` stops while the call connects.
"""

import threading
import time
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol

_STALE = 1.0
"""Seconds after its end from which a scope has no effect: an interrupt left it behind."""


class NeedsConnection(Exception):
    """The call would have to connect first, which may take longer than its deadline. Nothing was sent."""


class _Current(threading.local):
    until: float | None = None


_current = _Current()


class _DeadlineScope:
    """See `deadline_scope`. A class, because a generator takes several times as long and every ask pays it."""

    __slots__ = ("_until",)

    def __init__(self, until: float) -> None:
        self._until = until

    def __enter__(self) -> None:
        _current.until = self._until

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.until = None


def deadline_scope(until: float) -> _DeadlineScope:
    """Bound each call of a prompt store within this block, in this thread. Blocks are not nested.

    The store answers or raises StoreUnavailable in time. If it would have to connect first, it raises NeedsConnection
    at once.

    Args:
        until: the instant (seconds of time.monotonic()) by which each call ends.
    """
    return _DeadlineScope(until)


def current_deadline() -> float | None:
    """Return the instant by which this thread's call must end; None if it has no deadline."""
    until = _current.until
    return None if until is None or until + _STALE < time.monotonic() else until


class Watch(Protocol):
    """Measures how long a task's call has waited for the server."""

    def pause(self) -> None:
        """The call waits for a connection, or opens one."""
        ...

    def resume(self) -> None:
        """The call has a connection: from here on the time is the server's."""
        ...


WATCH: ContextVar[Watch | None] = ContextVar("batchlimit_watch", default=None)
"""The watch of the call that this task makes."""


class WatchPaused:
    """`with WatchPaused():` the time in this block is not the server's."""

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
