"""Asks all watchers of a limiter once a period, in the background."""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable

from batchlimit.concurrency.statistics import WatcherStatistics
from batchlimit.concurrency.watchers.base import Watcher
from batchlimit.concurrency.watchers.polled import Polled
from batchlimit.concurrency.watchers.threshold import checked_seconds

_logger = logging.getLogger("batchlimit")


class Rounds:
    """Once in `every` seconds, polls each watcher, and calls `tell` with the reasons to back off: all of them at once.

    An empty round is told as well. `tell` is called in a thread of ours, which serves threads and event loops alike;
    what it raises is logged. The first round is at the start, to give watchers of differences something to go by.

    A watcher that fails has seen nothing, nor has one that takes longer than the period; five such periods in a row
    count as one event. A poll that hangs is left alone: the watcher is not polled again before it has ended, and only
    the round that started it waits for it. A forked child makes rounds of its own, if its parent did.

    `wait` waits for an event for some seconds at most, and returns whether it was set.
    """

    def __init__(
        self,
        watchers: Iterable[Watcher],
        tell: Callable[[tuple[str, ...]], None],
        *,
        every: float = 30.0,
        clock: Callable[[], float] = time.monotonic,  # no round is late because the machine slept
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._watched = tuple(Polled(_checked(each)) for each in watchers)
        self._tell = tell
        self._every = min(checked_seconds("every", every), threading.TIMEOUT_MAX)
        self._clock = clock
        self._wait = wait
        self._stopping = False
        self._bell = threading.Event()  # rung when a poll ended, and to stop
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # held to start the thread once
        _living.add(self)

    def __repr__(self) -> str:
        state = "stopped" if self._stopping else "idle" if self._thread is None else f"every {self._every:g} s"
        return f"<Rounds: {state}, {', '.join(repr(each.statistics()) for each in self._watched) or 'no watchers'}>"

    def start(self) -> None:
        """Begin with the rounds, unless they have begun, were stopped, or there is nobody to ask."""
        with self._starting:
            if self._thread is not None or self._stopping or not self._watched:
                return
            thread = threading.Thread(target=self._run, name="batchlimit-watchers", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the next start tries again
                _logger.warning("nobody watches the machine: %s", error)
                return
            self._thread = thread

    def stop(self, seconds: float = 1.0) -> None:
        """End for good, and wait for the thread, so many seconds at most; polls that hang are left to themselves.

        When it returns, nothing is told any more, unless `tell` is what takes long, or what called this.
        """
        self._stopping = True
        self._bell.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def retire(self) -> None:
        """Make no further round; do not wake the thread or wait for it: no lock is taken, as in a destructor."""
        self._stopping = True

    def poll_once(self) -> tuple[str, ...]:
        """Make one round, never two at once: return the events, after a period at most; none if it is stopped."""
        deadline = self._clock() + self._every
        for each in self._watched:
            each.ask(self._bell.set)
        self._wait_until(deadline, lambda: not any(each.awaited for each in self._watched))
        if self._stopping:
            return ()
        answers = [each.answer() for each in self._watched]
        return tuple(event for event in answers if event is not None)

    def statistics(self) -> tuple[WatcherStatistics, ...]:
        """Return how each watcher did so far, in the order in which they were given."""
        return tuple(each.statistics() for each in self._watched)

    def after_fork(self) -> None:
        """In a forked child: the thread, its polls and what it held are the parent's."""
        begun, self._thread = self._thread is not None, None
        self._bell = threading.Event()
        self._starting = threading.Lock()
        for each in self._watched:
            each.forget()
        if begun:
            self.start()

    def _run(self) -> None:
        while not self._stopping:
            due = self._clock() + self._every
            events = self.poll_once()
            if not self._stopping:
                self._report(events)
            self._wait_until(due, lambda: False)

    def _report(self, events: tuple[str, ...]) -> None:
        _logger.debug("watchers: %s", "; ".join(events) or "all is well")
        try:
            self._tell(events)
        except Exception:  # the limiter's, or its law's: the next round may do better
            _logger.exception("what the watchers saw was lost: %s", events)

    def _wait_until(self, due: float, done: Callable[[], bool]) -> None:
        """Wait until it is due, done, or time to stop."""
        while True:
            self._bell.clear()  # before the look, so that whatever happens after it is not missed
            left = due - self._clock()
            if self._stopping or done() or left <= 0.0 or not self._wait(self._bell, left):
                return


def _checked(watcher: object) -> Watcher:
    if isinstance(watcher, type) or not isinstance(watcher, Watcher):
        raise TypeError(f"a watcher must have a name and a poll(), like MemoryWatcher(), not {watcher!r}")
    return watcher


_living: "weakref.WeakSet[Rounds]" = weakref.WeakSet()
"""All rounds that there are: a fork concerns them all, and tells nobody else."""


def _after_fork() -> None:
    for rounds in list(_living):
        rounds.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
