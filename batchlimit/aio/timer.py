"""The one timer of a limiter: for callers' deadlines, for pauses, and for tokens to be renewed or given back."""

import asyncio
import logging
import math
from collections.abc import Callable
from contextvars import Context
from typing import Protocol

from batchlimit.aio.turns import AT_ONCE
from batchlimit.reservoir.timer_heap import TimerHeap

_logger = logging.getLogger("batchlimit")


class Due(Protocol):
    """Something to come to at the instant `due` (instance clock); inf: not at all."""

    due: float

    def ring(self) -> None:
        """Do what is due; nobody else has to."""
        ...


class Timer:
    """Comes to each thing that is watched when it is due, by one timer of the loop for all of them.

    In one turn of the loop it rings for a few of them: the others are due still, so the timer is set to now.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._plans: TimerHeap[Due] = TimerHeap()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def __repr__(self) -> str:
        return f"<Timer with {len(self._plans)} plans, rings at {self._rings_at}>"

    def watch(self, thing: Due) -> None:
        """Come to this thing at its `due`."""
        self._plans.add(thing)
        if thing.due < self._rings_at:
            self._set_timer(thing.due)

    def stop(self) -> None:
        """Never ring again."""
        self._plans.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = at
        # In a context of its own: what a request has set in the one it runs in is not ours.
        self._timer = self._loop.call_later(max(0.0, at - self._clock()), self._ring, context=Context())

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        now = self._clock()
        for _ in range(AT_ONCE):
            if (thing := self._plans.take(now)) is None:
                break
            _ring_one(thing)
        if self._plans.first_at < self._rings_at:
            self._set_timer(self._plans.first_at)


def _ring_one(thing: Due) -> None:
    thing.due = math.inf
    try:
        thing.ring()
    except Exception:
        _logger.exception("looking after %r failed; the others are looked after", thing)
