"""What responses may still give back: who is refused for the lack of it waits a moment for them."""

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from batchlimit.integrations.enforcement.plan import Charged

S = TypeVar("S", threading.Event, asyncio.Event)
_HOLD = 1.0
"""Seconds that a request waits at most: for a login, and not for a download."""


class Underway(Generic[S]):
    """Requests of this process that were charged to a key, and whose response says what stays charged."""

    __slots__ = ("_lock", "_open", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held to touch these
        self._open: dict[str, int] = {}
        self._waiting: dict[str, list[S]] = {}

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

    def among(self, rules: Iterable[Charged]) -> set[str]:
        """Return the keys of which responses are under way."""
        return {key for rule, key, _ in rules if rule.charge is not None and key in self._open}

    def patience(self) -> float:
        """Return until when a request waits that was refused now."""
        return time.monotonic() + _HOLD

    def outcome(self, key: str, were: set[str], most: int, until: float) -> Any:
        """Wait for the next response that says what stays charged to a key; return whether to decide once more.

        Args:
            key: what is short.
            were: the keys of which responses were under way when that was decided.
            most: how many requests may wait at once: a crowd keeps no more of them.
            until: as `patience` said.

        Returns:
            That, or what a task awaits for it.
        """
        seconds = until - time.monotonic()
        if seconds <= 0.0 or not (key in were or key in self._open):
            return False
        with self._lock:
            waiting = self._waiting.setdefault(key, []) if key in self._open else None
            if waiting is None:
                return True  # it has just ended
            if len(waiting) >= most:
                return False
            waiting.append(signal := self._signal())
        return self._wait(key, signal, seconds)

    def _leave(self, key: str, signal: S) -> None:
        with self._lock:
            waiting = self._waiting.get(key, [])
            if signal in waiting:
                waiting.remove(signal)

    def _signal(self) -> S:
        raise NotImplementedError

    def _wait(self, key: str, signal: S, seconds: float) -> Any:
        raise NotImplementedError


class UnderwayThreads(Underway[threading.Event]):
    """The same, where threads wait."""

    __slots__ = ()
    _signal = threading.Event

    def _wait(self, key: str, signal: threading.Event, seconds: float) -> bool:
        try:
            return signal.wait(seconds)
        finally:
            self._leave(key, signal)


class UnderwayTasks(Underway[asyncio.Event]):
    """The same, where tasks wait."""

    __slots__ = ()
    _signal = asyncio.Event

    async def _wait(self, key: str, signal: asyncio.Event, seconds: float) -> bool:
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(signal.wait(), seconds)
            return signal.is_set()
        finally:
            self._leave(key, signal)
