"""Polls all watchers of a limiter once a period, in the background."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from batchlimit.base.forks import Forkables
from batchlimit.base.setting import between
from batchlimit.concurrency.statistics import WatcherStatistics
from batchlimit.concurrency.watchers.watcher import Watcher
from batchlimit.events import log_event

_TIMEOUTS = 5
"""So many timeouts of a watcher in a row are a reason to back off, as in Gitaly's adaptive limits: a machine that hangs
cannot say so."""


class Polled:
    """What a round does with one watcher: `ask` when it begins, `answer` when it ends. For one thread at a time."""

    __slots__ = ("_asked", "_errors", "_events", "_in_a_row", "_poll", "_polls", "_timeouts", "_watcher")

    def __init__(self, watcher: Watcher) -> None:
        given: object = watcher
        if isinstance(given, type) or not isinstance(given, Watcher):
            raise TypeError(f"a watcher must have a name and a poll(), like MemoryWatcher(), not {given!r}")
        self._watcher = watcher
        self._polls = self._events = self._errors = self._timeouts = self._in_a_row = 0
        self._poll: Future[str | None] | None = None
        self._asked = False  # whether the poll is this round's, and not one that hangs since an earlier one

    @property
    def awaited(self) -> bool:
        """Whether the round waits for it; for one that hangs since an earlier round nobody waits again."""
        return self._asked and self._poll is not None and not self._poll.done()

    def ask(self, ring: Callable[[], None]) -> None:
        """Poll the watcher, unless a poll of it still hangs. An answer that came after its round is thrown away."""
        self._asked = self._poll is None or self._poll.done()
        if not self._asked:
            return
        self._polls += 1
        self._poll = answer = Future[str | None]()

        def poll() -> None:
            try:
                event: object = self._watcher.poll()
                if event is not None and not isinstance(event, str):
                    raise TypeError(f"poll() must return a text or None, not {event!r}")
                answer.set_result(event)
            except BaseException as error:  # noqa: BLE001 - there is nobody to raise it to; the round counts it
                answer.set_exception(error)
            finally:
                ring()

        try:  # in a thread of its own: if it hangs, nothing else hangs
            threading.Thread(target=poll, name="batchlimit-watcher", daemon=True).start()
        except RuntimeError as error:
            answer.set_exception(error)

    def answer(self) -> str | None:
        """Return what the watcher makes of this round: a reason to back off, or None."""
        poll, event = self._poll, None
        if poll is None or not self._asked or not poll.done():
            self._timeouts += 1
            self._in_a_row += 1
            if self._in_a_row >= _TIMEOUTS:
                self._in_a_row, event = 0, f"{self._watcher.name} has not answered for {_TIMEOUTS} periods"
        else:
            self._in_a_row, error = 0, poll.exception()
            if error is None:
                event = poll.result()
            else:
                self._errors += 1
                level, name = logging.WARNING if self._errors == 1 else logging.DEBUG, self._watcher.name
                message = "watcher %s failed, which counts as nothing seen: %r"
                log_event("watcher.failed", message, name, error, level=level, watcher=name, reason=repr(error))
        self._events += event is not None
        return event

    def statistics(self) -> WatcherStatistics:
        return WatcherStatistics(self._watcher.name, self._polls, self._events, self._errors, self._timeouts)


class Rounds:
    """Polls each watcher once a period, and calls `tell` with the reasons to back off: all of them at once.

    `tell` is called after a round without reasons too, in a background thread; what it raises is logged. The first
    round is at the start, to give watchers of differences something to compare with. A watcher that fails has seen
    nothing, nor has one that takes longer than the period; five such periods in a row count as one event. A poll that
    hangs is neither repeated nor waited for again. A forked child makes rounds of its own, if its parent did.

    Args:
        watchers: The watchers to poll.
        tell: Called with the reasons of a round.
        every: The period (seconds, default 30).
        alone: True to make rounds also without watchers (default False).
        clock: Returns seconds (default `time.monotonic`).
        wait: Waits for an event for some seconds, and returns whether it was set (default `threading.Event.wait`).

    Raises:
        TypeError, ValueError: A watcher has no name or no `poll`, or `every` is no number above 0.

    Example:
        >>> from batchlimit.watchers import LatencyWatcher, Rounds
        >>> watcher = LatencyWatcher(target=0.1)
        >>> watcher.observe(200_000_000)
        >>> Rounds([watcher], print).poll_once()
        ('latency: 1 of 1 calls took over 0.1 s, 0.05 may',)
    """

    def __init__(
        self,
        watchers: Iterable[Watcher],
        tell: Callable[[tuple[str, ...]], None],
        *,
        every: float = 30.0,
        alone: bool = False,
        clock: Callable[[], float] = time.monotonic,  # no round is late because the machine slept
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._watched = tuple(map(Polled, watchers))
        self._tell = tell
        self._alone = alone
        self._every = min(between("every (seconds)", every, 0.0, math.inf, "()"), threading.TIMEOUT_MAX)
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
        """Begin with the rounds, unless they have begun or were stopped, or there are no watchers."""
        with self._starting:
            if self._thread is not None or self._stopping or not (self._watched or self._alone):
                return
            thread = threading.Thread(target=self._run, name="batchlimit-watchers", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the next start tries again
                log_event("watchers.off", "nobody watches the machine: %s", error, reason=str(error))
                return
            self._thread = thread

    def stop(self, seconds: float = 1.0) -> None:
        """End for good, and wait for the background thread; polls that hang are left alone.

        When it returns, `tell` is not called any more, unless `tell` is what takes long, or what called this.

        Args:
            seconds: How long to wait at most (seconds, default 1.0).
        """
        self._stopping = True
        self._bell.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def retire(self) -> None:
        """Make no further round, without waking the thread or waiting for it: no lock is taken, as in a destructor."""
        self._stopping = True

    def poll_once(self) -> tuple[str, ...]:
        """Make one round, never two at once; it takes one period at most.

        Returns:
            The reasons to back off; none if the rounds were stopped.
        """
        deadline = self._clock() + self._every
        for each in self._watched:
            each.ask(self._bell.set)
        self._wait_until(deadline, lambda: not any(each.awaited for each in self._watched))
        if self._stopping:
            return ()
        answers = [each.answer() for each in self._watched]
        return tuple(event for event in answers if event is not None)

    def statistics(self) -> tuple[WatcherStatistics, ...]:
        """Count what became of the polls so far.

        Returns:
            The statistics of each watcher, in the order in which they were given.
        """
        return tuple(each.statistics() for each in self._watched)

    def after_fork(self) -> None:
        """Begin anew in a forked child: the thread and its polls are the parent's."""
        begun, self._thread = self._thread is not None, None
        self._bell = threading.Event()
        self._starting = threading.Lock()
        for each in self._watched:
            each._poll, each._asked = None, False
        if begun:
            self.start()

    def _run(self) -> None:
        while not self._stopping:
            due = self._clock() + self._every
            events = self.poll_once()
            if not self._stopping:
                log_event("watchers.seen", "watchers: %s", "; ".join(events) or "all is well", seen=events)
                try:
                    self._tell(events)
                except Exception as error:  # noqa: BLE001  the limiter's, or its law's: the next round may do better
                    log_event("watchers.lost", "what the watchers saw was lost: %s", events, error=error, seen=events)
            self._wait_until(due, lambda: False)

    def _wait_until(self, due: float, done: Callable[[], bool]) -> None:
        """Wait until it is due, done, or time to stop."""
        while True:
            self._bell.clear()  # before the look, so that whatever happens after it is not missed
            left = due - self._clock()
            if self._stopping or done() or left <= 0.0 or not self._wait(self._bell, left):
                return


_living: Forkables[Rounds] = Forkables()
