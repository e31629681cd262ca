"""When the calls of one caller are due: each at an instant of its own, however slow the ones before it were.

A caller that lags calls at once. It wakes at most once a TICK and then makes every call that is due: to wake for each
one would cost the machine more than the calls do.
"""

from collections.abc import Iterator
from itertools import pairwise

from batchlimit.cli.plan import Plan

TICK = 0.001

# Calls that a caller makes before it looks at the clock again: few enough to end a phase in time.
_MOST_AT_ONCE = 16
# A caller with nothing to do for long still looks now and then whether it should stop.
_LONGEST_SLEEP = 0.2


class Stint:
    """What one caller does of one phase: `rate` calls/s from `begin` to `end`, instants of the monotonic clock."""

    __slots__ = ("_made", "_offset", "_rate", "begin", "end")

    def __init__(self, begin: float, end: float, rate: float, offset: float) -> None:
        """`offset` is what part of a call is already due at the begin."""
        self.begin, self.end = begin, end
        self._rate, self._offset = rate, offset
        self._made = 0

    def take_due(self, now: float) -> int:
        """Return how many calls are to be made at once: those that are due, a bunch at most. They count as made."""
        due = int((now - self.begin) * self._rate + self._offset) - self._made
        due = max(0, min(due, _MOST_AT_ONCE))
        self._made += due
        return due

    def pause(self, now: float) -> float:
        """Return how long (s) a caller may sleep for whom nothing is due."""
        next_due = self.begin + (self._made + 1 - self._offset) / self._rate if self._rate else self.end
        return min(max(next_due - now, TICK), max(self.end - now, 0.0), _LONGEST_SLEEP)


def stints(plan: Plan, host: int, offset: float, start: float) -> Iterator[Stint]:
    """Each phase of one caller, as far as its host is there; `offset` sets it apart from the other callers."""
    joins, leaves = plan.stay(host)
    for phase, (begin, end) in zip(plan.phases, pairwise([0.0, *plan.ends]), strict=True):
        if max(begin, joins) < min(end, leaves):
            rate = phase.rate * plan.share(host) / plan.threads
            yield Stint(start + max(begin, joins), start + min(end, leaves), rate, offset)
