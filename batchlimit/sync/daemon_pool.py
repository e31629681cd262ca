"""Threads that wait for a store, so that whoever asked can leave in time."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any, TypeVar

from batchlimit.reentry import free, own_lock

T = TypeVar("T")
_MOST = 16
"""Threads at the same time. What waits for one of them is no more than the callers who wait for that."""
_LATE = 0.1
"""Who wakes later than this part of a budget is late itself: with a default of 50 ms, by Python's switch interval, as
one is beside a thread that computes. So was the thread that does the work, and several times over."""
_GRACE = 0.5
"""Then it has this part of a budget more, once."""
_STALL = 0.5
"""Who wakes later than this part of a budget did not run at all meanwhile, nor did the work: it has another budget."""
_STALLS = 3
"""But so often at the most: a machine that is always as late would have it wait for ever."""
_IDLE = 10.0
"""Seconds after which a thread ends that had nothing to do."""


def _never() -> bool:
    return False


class DaemonPool:
    """Runs calls that may take long, or for ever, in threads of its own.

    Daemons, unlike those of concurrent.futures: a store that never answers must not hold up the interpreter's end.
    """

    def __init__(self) -> None:
        self._errands: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        # Held to touch what is here. It is entered by itself: a Condition is Python where it locks and unlocks, and a
        # signal handler that raises amid that would leave it locked for ever.
        self._lock = own_lock()
        self._news = threading.Condition(self._lock)  # type: ignore[arg-type]  # it is an RLock
        self._threads = self._idle = 0
        self._stopped = False

    def __repr__(self) -> str:
        return f"<DaemonPool of {self._threads} threads>"

    def run(self, work: Callable[[], T], seconds: float, most: float = 0.0, failing: Callable[[], bool] = _never) -> T:
        """Return what `work` returns, or raise what it raises; TimeoutError after so many seconds.

        Or after `most`, unless it is `failing`: asked each `seconds`. What has not begun by then never will. Else it
        goes on, and nobody hears what becomes of it.
        """
        request: Future[T] = Future()
        with free(self._lock):
            taken = not self._stopped and self._hire()
            if taken:
                self._errands.append((request, work))
                self._news.notify()
        if not taken:
            return work()  # it was stopped, or the interpreter ends: there are no others to be kept waiting
        try:
            return _awaited(request, seconds, most, failing)
        finally:
            if request.cancel():
                self._forget((request, work))

    def stop(self) -> None:
        """Let the threads end after what they are doing; what is run later, its caller runs."""
        with free(self._lock):
            self._stopped = True
            self._news.notify_all()

    def _forget(self, request: tuple["Future[Any]", Callable[[], Any]]) -> None:
        """Nobody waits for it any more; where all threads hang, what is left behind would pile up."""
        with free(self._lock), contextlib.suppress(ValueError):
            self._errands.remove(request)

    def _hire(self) -> bool:
        """Requires the lock. Have somebody for one request more, now or in a while; False if there is nobody."""
        if self._idle <= len(self._errands) and self._threads < _MOST:
            try:
                threading.Thread(target=self._work, name="batchlimit-store", daemon=True).start()
            except RuntimeError:
                return self._threads > 0
            self._threads += 1
        return True

    def _work(self) -> None:
        while (request := self._next()) is not None:
            _do(*request)
            del request  # a thread that waits keeps nothing alive

    def _next(self) -> tuple["Future[Any]", Callable[[], Any]] | None:
        """Wait for something to do; None: this thread is to end."""
        with self._news:
            in_time = True
            while not self._errands and in_time and not self._stopped:
                self._idle += 1
                in_time = self._news.wait(_IDLE)
                self._idle -= 1
            if self._errands:
                return self._errands.popleft()
            self._threads -= 1
            return None


def _awaited(request: "Future[T]", seconds: float, most: float, failing: Callable[[], bool]) -> T:
    begun = woken = monotonic()
    budget, lenience = seconds, _Lenience(seconds)
    while True:
        due = woken + budget
        try:
            return request.result(max(0.0, due - monotonic()))
        except TimeoutError:
            woken = monotonic()
            if request.done():  # it ended just now; or it raised a TimeoutError of its own
                return request.result()
        is_over = failing() or woken - begun >= most
        budget = lenience.more(woken - due) if is_over else seconds
        if budget == 0.0:
            raise TimeoutError


class _Lenience:
    """How much longer (s) one is waited for where this process is late itself."""

    __slots__ = ("_grace", "_seconds", "_stalls")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._grace, self._stalls = _GRACE * seconds, _STALLS

    def more(self, late: float) -> float:
        """Return for how long yet, where the one who waits woke so late; 0: no longer."""
        if late > _STALL * self._seconds and self._stalls:
            self._stalls -= 1
            return self._seconds
        grace = self._grace if late > _LATE * self._seconds else 0.0
        self._grace -= grace
        return grace


def _do(request: "Future[Any]", work: Callable[[], Any]) -> None:
    if request.set_running_or_notify_cancel():
        try:
            request.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited, if anybody awaits it still
            request.set_exception(error)
