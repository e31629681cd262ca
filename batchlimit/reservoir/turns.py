"""Whose turn is next among waiters of several priorities: fair queueing by weights.

Each priority has a line of its own, in order of arrival, and a time. Served tokens move the time of their line on, by
1 / priority each. The line whose time would be the earliest after its first waiter is next. So callers of priority 10
pass those of priority 1, and of eleven tokens one is for these all the same. A line that was empty begins at the time
of the line that was served last: nobody saves turns up.
"""

from collections.abc import Iterable

from batchlimit.reservoir.waiter import Waiter


class Turns:
    """The times of the lines of one queue, from the first waiter with a priority on until the queue is empty."""

    __slots__ = ("_now", "_times")

    def __init__(self) -> None:
        self._now = 0.0
        self._times = {1: 0.0}

    def __repr__(self) -> str:
        return f"<Turns at {self._now}: {self._times}>"

    def begin(self, priority: int) -> None:
        """Take note that somebody joins a line that was empty."""
        self._times[priority] = max(self._now, self._times.get(priority, 0.0))

    def served(self, waiter: Waiter) -> None:
        """Take note that the first waiter of a line was given its tokens."""
        priority = waiter.priority
        time = self._times.get(priority, self._now)
        self._now, self._times[priority] = max(self._now, time), time + waiter.cost / priority

    def next(self, firsts: Iterable[Waiter | None]) -> Waiter | None:
        """Return the one whose turn it is of those who are first in their lines."""
        return min(filter(None, firsts), key=self._ends, default=None)

    def _ends(self, waiter: Waiter) -> tuple[float, int]:
        priority = waiter.priority
        return self._times.get(priority, self._now) + waiter.cost / priority, -priority
