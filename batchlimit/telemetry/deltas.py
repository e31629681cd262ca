"""A background thread that adds what has changed to counters that outlive their process."""

import atexit
import os
import threading
import weakref
from collections.abc import Callable

from batchlimit.base.histogram import Histogram
from batchlimit.telemetry.reading import Labelled, Sources

Add = Callable[[Labelled, float], None]
_PATIENCE = 1.0
"""A fork waits so long (s) for a look at most: a look takes milliseconds, and one that forks itself never ends."""


class Observed:
    """Tells `add` of each duration once, by what histograms count: client libraries take durations one by one."""

    def __init__(self, add: Add) -> None:
        self._add, self.last = add, dict[Labelled, Histogram]()

    def tell(self, labelled: Labelled, now: Histogram) -> None:
        """Tell of what was added since the last time."""
        more, self.last[labelled] = now.since(self.last.get(labelled, Histogram()))
        for seconds, many in more:
            for _ in range(many):
                self._add(labelled, seconds)


class Deltas:
    """Reads sources now and then, and tells by how much each series has changed.

    It ends when all sources are gone. It goes on in a forked child, from what the child has counted by then: what its
    parent counted is the parent's. `then` is called after each reading in the background.
    """

    def __init__(self, sources: Sources, add: Add, every: float, then: Callable[[], object] = lambda: None) -> None:
        self._sources, self._add, self._every, self._then = sources, add, every, then
        self._last: dict[Labelled, float] = {}
        self._durations = Observed(add)
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read in the background."""
        self._thread = threading.Thread(target=self._run, name="batchlimit-telemetry", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Tell of what has changed since the last look."""
        with self._lock:
            for labelled, value in self._sources.read().items():
                if isinstance(value, Histogram):
                    self._durations.tell(labelled, value)
                else:
                    self._tell(labelled, value)

    def _tell(self, labelled: Labelled, value: float) -> None:
        change = value - self._last.get(labelled, 0)
        if change < 0 and labelled.series.metric.kind == "counter":  # one source of several has gone: wait for more
            return
        if change or labelled not in self._last:  # a series begins with 0
            self._add(labelled, change)
            self._last[labelled] = value

    def stop(self) -> None:
        """Look once more, and then never again."""
        if not self._stopped.is_set():
            self._stopped.set()
            self.look()

    def _run(self) -> None:
        stopped = self._stopped
        while not stopped.wait(self._every) and self._sources:
            self.look()
            self._then()

    def pause(self) -> bool:
        """Wait until a look has ended; then none begins before `go_on`. False: it lasted for too long."""
        return self._lock.acquire(timeout=_PATIENCE)

    def go_on(self) -> None:
        """End a pause."""
        self._lock.release()

    def after_fork(self) -> None:
        """Go on in a forked child."""
        is_running = not self._stopped.is_set() and self._thread is not None
        self._begin()
        self._last, self._durations = {}, Observed(self._add)
        for each, value in self._sources.read().items():
            if isinstance(value, Histogram):
                self._durations.last[each] = value
            elif each.series.metric.kind == "counter":
                self._last[each] = value
        if is_running:
            self.start()


_living: "weakref.WeakSet[Deltas]" = weakref.WeakSet()


class _Paused(threading.local):
    """Those that this thread has paused, to fork: another thread may fork at the same time."""

    def __init__(self) -> None:
        self.deltas: list[Deltas] = []


_paused = _Paused()


def _before_fork() -> None:
    """Wait for the looks: prometheus-client has one lock for all counters, and in a child it would stay locked."""
    _paused.deltas.extend(deltas for deltas in list(_living) if deltas.pause())


def _after_in_parent() -> None:
    while _paused.deltas:
        _paused.deltas.pop().go_on()


def _after_fork() -> None:
    _paused.deltas.clear()
    for deltas in list(_living):
        deltas.after_fork()


@atexit.register
def _at_exit() -> None:
    for deltas in list(_living):
        deltas.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_fork)
