"""What a watcher is, and how the rounds poll it: its polls, its answers and its statistics."""

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from batchlimit.base.setting import between
from batchlimit.concurrency.statistics import WatcherStatistics
from batchlimit.events import log_event


@runtime_checkable
class Watcher(Protocol):
    """Looks at one thing once a period. It is polled by one thread at a time, not always by the same.

    Example:
        >>> import os
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.watchers import Watcher
        >>> class LoadWatcher:
        ...     name = "load"
        ...     def poll(self) -> str | None:
        ...         load = os.getloadavg()[0]
        ...         return f"load {load:.1f}" if load > 1000 else None
        >>> isinstance(LoadWatcher(), Watcher)
        True
        >>> ConcurrencyLimiter(watchers=[LoadWatcher()], every=10.0).close()
    """

    @property
    def name(self) -> str:
        """Its name in logs and in the statistics."""

    def poll(self) -> str | None:
        """Look once. It may raise, or block for as long as it likes: the poller has to live with that.

        Returns:
            A reason to back off, with its figures; None if all is well, or if there is nothing to tell by.
        """


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

    def forget(self) -> None:
        """In a forked child: the poll under way was another process's."""
        self._poll = None
        self._asked = False

    def statistics(self) -> WatcherStatistics:
        return WatcherStatistics(self._watcher.name, self._polls, self._events, self._errors, self._timeouts)


class Threshold:
    """Is exceeded from `high` on, until the value falls below `low`.

    Between the two it stays what it was, so that a value that trembles does not switch it. It is pure: values go in, in
    any unit.

    Args:
        high: From this value on it is exceeded (above 0).
        low: Below this value it is exceeded no longer (above 0, at most `high`; None, the default: `high`).

    Raises:
        ValueError: A value is out of its range.

    Example:
        >>> from batchlimit.watchers import Threshold
        >>> threshold = Threshold(0.9, low=0.8)
        >>> [threshold.update(value) for value in (0.85, 0.95, 0.85, 0.75)]
        [False, True, True, False]
    """

    __slots__ = ("exceeded", "high", "low")

    def __init__(self, high: float, low: float | None = None) -> None:
        self.high = between("a threshold", high, 0.0, math.inf, "()")
        self.low = high if low is None else low
        self.exceeded = False
        if not 0 < self.low <= self.high:
            raise ValueError(f"low must be more than 0 and at most the threshold of {high!r}, not {low!r}")

    def __repr__(self) -> str:
        return f"<Threshold: {self.low:g} to {self.high:g}, {'exceeded' if self.exceeded else 'kept'}>"

    def update(self, value: float) -> bool:
        """Take in the value of now.

        Args:
            value: The value, in the unit of `high`.

        Returns:
            True if it is too high.
        """
        self.exceeded = value >= (self.low if self.exceeded else self.high)
        return self.exceeded

    def forget(self) -> None:
        """Take the value for low until it is known again."""
        self.exceeded = False


def of_shares(threshold: object, low: object, relief: float = 1.0) -> Threshold:
    """Return a threshold between shares of a whole; without `low` it is left below `relief` of the threshold."""
    high = between("threshold", threshold, 0.0, 1.0, "(]")
    return Threshold(high, relief * high if low is None else between("low", low, 0.0, 1.0, "(]"))
