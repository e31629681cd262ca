"""What responses may still give back: who is refused for the lack of it waits a moment for them."""

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from batchlimit.base.steps import Steps
from batchlimit.integrations.enforcement.plan import Charged

Event = type[threading.Event] | type[asyncio.Event]
_HOLD = 1.0
"""Seconds that a request waits at most: for a login, and not for a download."""


class Underway:
    """Requests of this process that were charged to a key, and whose response says what stays charged."""

    __slots__ = ("_event", "_lock", "_open", "_waiting")

    def __init__(self, event: Event) -> None:
        self._event = event  # what threads or tasks wait for
        self._lock = threading.Lock()  # held to touch these
        self._open: dict[str, int] = {}
        self._waiting: dict[str, list[threading.Event | asyncio.Event]] = {}

    def begin(self, charges: Iterable[Charged]) -> None:
        """Note that responses will say what of these stays charged."""
        with self._lock:
            for _, key, _ in charges:
                self._open[key] = self._open.get(key, 0) + 1

    def end(self, key: str) -> None:
        """Note that one has said it, and wake who waits for that."""
        with self._lock:
            if (left := self._open.get(key, 0) - 1) > 0:
                self._open[key] = left
            else:
                self._open.pop(key, None)
            waiting = self._waiting.pop(key, [])
        for each in waiting:
            each.set()

    def among(self, charges: Iterable[Charged]) -> set[str]:
        """Return the keys of these of which responses are under way."""
        return {key for _, key, _ in charges if key in self._open} if self._open else set()

    def patience(self) -> float:
        """Return until when a request waits that was refused now."""
        return time.monotonic() + _HOLD

    def outcome(self, key: str, were: set[str], most: int, until: float) -> Steps[bool]:
        """Wait for the next response that says what stays charged to a key; return whether to decide once more.

        Responses to the keys `were` under way when it was refused. At most so many wait at once: a crowd keeps no more.
        """
        seconds = until - time.monotonic()
        if seconds <= 0.0 or not (key in were or key in self._open):
            return False
        with self._lock:
            if key not in self._open:
                return True  # it has just ended
            waiting = self._waiting.setdefault(key, [])
            if len(waiting) >= most:
                return False
            waiting.append(event := self._event())
        try:
            if isinstance(event, threading.Event):
                event.wait(seconds)
            else:
                with suppress(TimeoutError):
                    yield asyncio.wait_for(event.wait(), seconds)
            return event.is_set()
        finally:
            with self._lock:
                if event in (waiting := self._waiting.get(key, [])):
                    waiting.remove(event)
