"""The one timer of a limiter: for callers' deadlines, for pauses, and for tokens to be renewed or given back."""

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import Callable
from contextvars import Context
from typing import Protocol

_logger = logging.getLogger("batchlimit")
_FEWEST = 64
"""Plans are not tidied up below this number."""


class Due(Protocol):
    """Something to come to at the instant `due` (host clock); inf: not at all."""

    due: float

    def ring(self) -> None:
        """Do what is due; nobody else has to."""
        ...


class Keeper:
    """Comes to each thing that is watched when it is due, by one timer of the loop for all of them.

    A plan in the heap whose thing has meanwhile another `due` is stale and skipped. A thousand callers who are served
    leave a thousand stale plans behind, so they are thrown out whenever the heap has doubled.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._heap: list[tuple[float, int, Due]] = []
        self._order = itertools.count()  # breaks ties in the heap
        self._most = _FEWEST
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def __repr__(self) -> str:
        return f"<Keeper with {len(self._heap)} plans, rings at {self._rings_at}>"

    def watch(self, thing: Due) -> None:
        """Come to this thing at its `due`."""
        if len(self._heap) >= self._most:
            self._tidy()
        heapq.heappush(self._heap, (thing.due, next(self._order), thing))
        if thing.due < self._rings_at:
            self._set_timer(thing.due)

    def stop(self) -> None:
        """Never ring again."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _tidy(self) -> None:
        self._heap = [plan for plan in self._heap if plan[0] == plan[2].due]
        heapq.heapify(self._heap)
        self._most = max(_FEWEST, 2 * len(self._heap))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = at
        # In a context of its own: what a request has set in the one it runs in is not ours.
        self._timer = self._loop.call_later(max(0.0, at - self._clock()), self._ring, context=Context())

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            at, _, thing = heapq.heappop(self._heap)
            if at == thing.due:
                _ring_one(thing)
        if self._heap and self._heap[0][0] < self._rings_at:
            self._set_timer(self._heap[0][0])


def _ring_one(thing: Due) -> None:
    thing.due = math.inf
    try:
        thing.ring()
    except Exception:
        _logger.exception("looking after %r failed; the others are looked after", thing)
