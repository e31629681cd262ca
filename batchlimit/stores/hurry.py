"""How long a caller can wait, told to all that it calls in its own thread: by then there is an answer, or none."""

import threading
from types import TracebackType


class NotPrompt(Exception):
    """There may be an answer, but not within the hurry: it would take a new connection. Nothing was sent."""


class _Told(threading.local):
    until: float | None = None


_told = _Told()


class _Hurry:
    """See `hurry`. A class, for a generator would take several times as long, and every ask pays it."""

    __slots__ = ("_before", "_until")

    def __init__(self, until: float) -> None:
        self._until = until
        self._before: float | None = None

    def __enter__(self) -> None:
        self._before = before = _told.until
        _told.until = self._until if before is None else min(before, self._until)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _told.until = self._before


def hurry(until: float) -> _Hurry:
    """Within this block, in this thread, a prompt store ends each call before time.monotonic() is at `until`.

    It answers or raises StoreUnavailable by then; or raises NotPrompt, at once, where it would have to connect first.
    """
    return _Hurry(until)


def hurrying() -> float | None:
    """Return the instant by which this thread's call must be over; None: there is no hurry."""
    return _told.until
