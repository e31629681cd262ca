"""Threads that wait for a store, so that callers can leave in time."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any, TypeVar

from batchlimit.base.blocking import OwnLock, not_reentered

T = TypeVar("T")
_MOST = 16
"""Threads at the same time. Calls beyond that wait for a free thread; there are never more of them than callers."""
_LATE = 0.1
"""A caller that wakes later than this part of its budget was held up itself. With the default of 50 ms that is the 5 ms
of Python's switch interval, beside a thread that computes. The thread that does the work was held up several times."""
_GRACE = 0.5
"""In that case the caller waits for this part of its budget more, once."""
_STALL = 0.5
"""If the caller wakes later than this part of its budget, the whole process stood still: it gets another budget."""
_STALLS = 3
"""But only so often: on a machine that always stalls the caller would wait for ever."""
_IDLE = 10.0
"""A thread ends after so many idle seconds."""


class DaemonPool:
    """Runs calls that may take long, or for ever, in threads of its own.

    Daemons, unlike those of concurrent.futures: a store that never answers must not hold up the interpreter's end.
    """

    def __init__(self) -> None:
        self._queued: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        # Held to touch what is here. The lock is entered, and not the Condition: that is Python where it locks and
        # unlocks, and a signal handler that raises there would leave it locked for ever.
        self._lock = OwnLock()
        self._news = threading.Condition(self._lock)  # it is an RLock
        self._threads = self._idle = 0
        self._stopped = False

    def run(self, work: Callable[[], T], seconds: float, most: float = 0.0, failing: Callable[[], bool] = bool) -> T:
        """Return what `work` returns, or raise what it raises; TimeoutError if that takes too long.

        Each `seconds` the caller looks: too long is when it is `failing`, or `most` seconds (default 0) have passed.
        Work that has not begun by then never begins. Work that has begun goes on, and its result is dropped.
        """
        request: Future[T] = Future()
        with not_reentered(self._lock):
            taken = not self._stopped and self._find_thread()
            if taken:
                self._queued.append((request, work))
                self._news.notify()
        if not taken:
            return work()  # it was stopped, or the interpreter ends: no other caller is kept waiting
        try:
            return _awaited(request, seconds, most, failing)
        finally:
            if request.cancel():  # nobody waits for it: if all threads hang, such requests would pile up
                with not_reentered(self._lock), contextlib.suppress(ValueError):
                    self._queued.remove((request, work))

    def stop(self) -> None:
        """Let the threads end after their present work. A later caller runs its work itself."""
        with not_reentered(self._lock):
            self._stopped = True
            self._news.notify_all()

    def _find_thread(self) -> bool:
        """Requires the lock. Make sure that a thread takes one request more, now or soon; False if none can."""
        if self._idle <= len(self._queued) and self._threads < _MOST:
            try:
                threading.Thread(target=self._work, name="batchlimit-store", daemon=True).start()
            except RuntimeError:
                return self._threads > 0
            self._threads += 1
        return True

    def _work(self) -> None:
        while (request := self._next()) is not None:
            _do(*request)
            del request  # an idle thread keeps nothing alive

    def _next(self) -> tuple["Future[Any]", Callable[[], Any]] | None:
        """Wait for something to do; None: this thread is to end."""
        with self._news:
            in_time = True
            while not self._queued and in_time and not self._stopped:
                self._idle += 1
                in_time = self._news.wait(_IDLE)
                self._idle -= 1
            if self._queued:
                return self._queued.popleft()
            self._threads -= 1
            return None


def _awaited(request: "Future[T]", seconds: float, most: float, failing: Callable[[], bool]) -> T:
    begun = woken = monotonic()
    budget, grace, stalls = seconds, _GRACE * seconds, _STALLS
    while True:
        due = woken + budget
        try:
            return request.result(max(0.0, due - monotonic()))
        except TimeoutError:
            woken = monotonic()
            if request.done():  # it ended just now; or it raised a TimeoutError of its own
                return request.result()
        late, is_over = woken - due, failing() or woken - begun >= most
        if not is_over:
            budget = seconds
        elif late > _STALL * seconds and stalls:
            budget, stalls = seconds, stalls - 1
        elif late > _LATE * seconds and grace:
            budget, grace = grace, 0.0
        else:
            raise TimeoutError


def _do(request: "Future[Any]", work: Callable[[], Any]) -> None:
    if request.set_running_or_notify_cancel():
        try:
            request.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised in the caller, if it still waits
            request.set_exception(error)
