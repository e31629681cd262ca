"""Threads that wait for a store, so that whoever asked can leave in time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_MOST = 16
"""Threads at the same time. What waits for one of them is no more than the callers who wait for that."""
_IDLE = 10.0
"""Seconds after which a thread ends that had nothing to do."""
Errand = tuple["Future[Any]", Callable[[], Any]]


class Courier:
    """Runs calls that may take long, or for ever, in threads of its own.

    Daemons, unlike those of concurrent.futures: a store that never answers must not hold up the interpreter's end.
    """

    def __init__(self) -> None:
        self._errands: SimpleQueue[Errand | None] = SimpleQueue()
        self._lock = threading.Lock()  # held to count the threads
        self._threads = self._idle = 0
        self._stopped = False

    def __repr__(self) -> str:
        return f"<Courier of {self._threads} threads>"

    def run(self, work: Callable[[], T], seconds: float) -> T:
        """Return what `work` returns, or raise what it raises; TimeoutError after so many seconds.

        Where that had not begun by then it never will. Else it goes on, and nobody hears what becomes of it.
        """
        if self._stopped:
            return work()
        errand: Future[T] = Future()
        self._errands.put((errand, work))
        if not self._hire():
            return work()  # the interpreter ends: there are no more threads, nor others to be kept waiting
        try:
            return errand.result(seconds)
        finally:
            errand.cancel()

    def stop(self) -> None:
        """Let the threads end after what they are doing; what is run later, its caller runs."""
        with self._lock:
            self._stopped = True
            for _ in range(self._threads):
                self._errands.put(None)

    def _hire(self) -> bool:
        """Have somebody who runs what was put in; False if there is nobody, and will not be."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1  # taken: the next errand finds another
                return True
            if self._threads >= _MOST:
                return True
            thread = threading.Thread(target=self._work, name="batchlimit-courier", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return self._threads > 0
            self._threads += 1
            return True

    def _work(self) -> None:
        while (errand := self._next()) is not None:
            _do(*errand)
            del errand  # a thread that waits keeps nothing alive

    def _next(self) -> Errand | None:
        """Wait for something to do; None: this thread is to end."""
        try:
            errand = self._errands.get_nowait()
        except Empty:
            errand = self._wait()
        if errand is None:
            with self._lock:
                self._threads -= 1
        return errand

    def _wait(self) -> Errand | None:
        with self._lock:
            self._idle += 1
        while True:
            try:
                return self._errands.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    if self._idle > 0:  # else somebody counts on us, who has put something in by now
                        self._idle -= 1
                        return None


def _do(errand: "Future[Any]", work: Callable[[], Any]) -> None:
    if errand.set_running_or_notify_cancel():
        try:
            errand.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited, if anybody awaits it still
            errand.set_exception(error)
