"""The background thread of a limiter: it renews, prefetches and gives back tokens, and lets idle keys go."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from batchlimit.core.claim import Fetch
from batchlimit.core.lease import GiveBack
from batchlimit.errors import StoreUnavailable
from batchlimit.sync.slot import Slot

_logger = logging.getLogger("batchlimit")


class Keeper:
    """Looks after each slot at its `due`; the thread starts with the first slot and ends with `stop`.

    Slots come in by a SimpleQueue, whose put may be called anywhere, in a destructor too. The heap is the thread's
    own; an entry whose slot has meanwhile another `due` is stale and skipped.
    """

    def __init__(self, clock: Callable[[], float], retire: Callable[[Slot], None], ended: Callable[[], None]) -> None:
        self._clock = clock
        self._retire = retire
        self._ended = ended
        self._inbox: SimpleQueue[Slot | None] = SimpleQueue()
        self._heap: list[tuple[float, int, Slot]] = []
        self._order = itertools.count()  # breaks ties in the heap: slots have no order
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # held to start the thread once

    def watch(self, slot: Slot) -> None:
        """Come to this slot at its `due`."""
        self._inbox.put(slot)
        if self._thread is None:
            self._start()

    def stop(self) -> bool:
        """Tell the thread to end after what it is doing, and then to call `ended`; False if none ever started."""
        self._inbox.put(None)
        return self._thread is not None

    def join(self) -> None:
        """Wait for the thread to end, unless this is it."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="batchlimit-keeper", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._receive():
            now = self._clock()
            while self._heap and self._heap[0][0] <= now:
                due, _, slot = heapq.heappop(self._heap)
                if due == slot.due:
                    self._tend(slot)
        self._ended()

    def _receive(self) -> bool:
        """Sleep until a slot is due or comes in; False: stop."""
        seconds = max(0.0, self._heap[0][0] - self._clock()) if self._heap else None
        try:
            while (slot := self._inbox.get(timeout=seconds)) is not None:
                self._plan(slot)
                seconds = 0.0  # whatever else is there, then to work
        except Empty:
            return True
        return False

    def _plan(self, slot: Slot) -> None:
        heapq.heappush(self._heap, (slot.due, next(self._order), slot))

    def _tend(self, slot: Slot) -> None:
        """Do what there is to do; a store that is away is no reason to stop looking after the others."""
        try:
            match slot.tend():
                case Fetch() as fetch:
                    slot.fetch(fetch)
                case GiveBack() as back:
                    slot.give_back(back)
                case None:
                    pass
        except StoreUnavailable as error:
            _logger.debug("tokens of %r were not given back: %s", slot.key, error)
        if slot.reservoir.retired:
            self._retire(slot)
