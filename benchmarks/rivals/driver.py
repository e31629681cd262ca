"""A rival for real: threads, a lock, and a store that is asked without it."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from batchlimit import StoreUnavailable
from benchmarks.audited_fleet.limiter import Tally
from benchmarks.rivals.request import Course, Request, Rival


class Answers(Protocol):
    """The holder of the shared bucket of one key."""

    def ask(self, request: Request) -> int: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """How many requests the store got."""

    calls: int


class Driver:
    """A rival with the face of a limiter, for one key and any number of threads."""

    def __init__(self, rival: Rival, store: Answers, clock: Callable[[], float] = time.monotonic) -> None:
        self.tally = Tally()
        self._rival, self._store, self._clock = rival, store, clock
        # Held to step the rival, never while the store is asked; notified when a request is over, or somebody
        # leaves the line.
        self._turn = threading.Condition()
        self._busy = False  # a request is under way
        self._line: deque[object] = deque()  # who waits until none is
        self._calls = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._go_round, name="rival-rounds", daemon=True)
        if rival.period is not None:
            self._thread.start()

    def try_acquire(self, key: str, cost: int = 1, /) -> bool:
        with self._turn:
            course = self._begin(cost)
        self._finish(course)
        return course.verdict

    def statistics(self) -> Asked:
        return Asked(self._calls)

    def close(self) -> None:
        self._closed.set()
        if self._rival.period is not None:
            self._thread.join()
        self._store.close()

    def _begin(self, cost: int) -> Course[bool]:
        """Requires the lock. A course that is over, or whose request may leave."""
        course = Course(self._rival.admit(cost, self._clock()))
        if course.request is not None:
            self.tally.waited += 1
            if self._rival.single:
                self._wait_in_line()
                course = Course(self._rival.admit(cost, self._clock()))
        self._busy = self._busy or course.request is not None
        return course

    def _wait_in_line(self) -> None:
        """Requires the lock. First come, first to look again: a rival is not to starve its callers by our doing."""
        place = object()
        self._line.append(place)
        self._turn.wait_for(lambda: not self._busy and self._line[0] is place)
        self._line.popleft()
        self._turn.notify_all()

    def _finish(self, course: Course[bool] | Course[None]) -> None:
        while (request := course.request) is not None:
            try:
                reply = self._store.ask(request)
            except BaseException:
                self._report(None, course)
                raise
            self._report(reply, course)

    def _report(self, reply: int | None, course: Course[bool] | Course[None]) -> None:
        with self._turn:
            self._calls += 1
            if reply is not None:
                course.answer(reply)
            self._busy = reply is not None and course.request is not None
            self._turn.notify_all()

    def _go_round(self) -> None:
        while not self._closed.wait(self._rival.period):
            with self._turn:
                self._turn.wait_for(lambda: not self._busy)
                course = Course(self._rival.background(self._clock()))
                self._busy = course.request is not None
            try:
                self._finish(course)
            except StoreUnavailable:
                pass  # the next round tells it again, or the next caller
