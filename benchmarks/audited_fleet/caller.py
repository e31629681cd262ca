"""One caller, a thread or a task of a process: its calls, and its log of them."""

import random
from array import array
from collections.abc import Iterator
from itertools import cycle, islice, pairwise
from typing import NamedTuple

from benchmarks.audited_fleet.plan import Plan

TICK = 0.001

# Calls that a caller makes between two readings of the clock: few enough to end a phase in time.
_MOST_AT_ONCE = 16
# Seconds after which an idle caller checks whether it should stop.
_LONGEST_SLEEP = 0.2


class Stint:
    """One caller's part of one phase: `rate` calls/s from `begin` to `end`, instants of the monotonic clock."""

    __slots__ = ("_made", "_offset", "_rate", "begin", "end")

    def __init__(self, begin: float, end: float, rate: float, offset: float) -> None:
        """`offset` is the part of a call that is already due at the beginning."""
        self.begin, self.end = begin, end
        self._rate, self._offset = rate, offset
        self._made = 0

    def take_due(self, now: float) -> int:
        """Return how many due calls to make at once, at most _MOST_AT_ONCE. They count as made."""
        due = int((now - self.begin) * self._rate + self._offset) - self._made
        due = max(0, min(due, _MOST_AT_ONCE))
        self._made += due
        return due

    def pause(self, now: float) -> float:
        """Return how long (seconds) a caller may sleep if no call is due."""
        next_due = self.begin + (self._made + 1 - self._offset) / self._rate if self._rate else self.end
        return min(max(next_due - now, TICK), max(self.end - now, 0.0), _LONGEST_SLEEP)


def stints(plan: Plan, process: int, offset: float, start: float) -> Iterator[Stint]:
    """Yield the stints of one caller while its process is present; `offset` differs for each caller."""
    joins, leaves = plan.stay(process)
    for phase, (begin, end) in zip(plan.phases, pairwise([0.0, *plan.ends]), strict=True):
        if max(begin, joins) < min(end, leaves):
            rate = phase.rate * plan.share(process) / plan.threads
            yield Stint(start + max(begin, joins), start + min(end, leaves), rate, offset)


SPELL = 0.01
"""Seconds: the resolution at which a process logs its demand."""


class Call(NamedTuple):
    """One call as its caller saw it. Instants are seconds on the monotonic clock, which a machine's processes share."""

    before: float
    after: float
    tokens: int
    waited: bool
    """Whether it waited for the store."""


class CallLog:
    """Many calls in little memory; cheap to append to, and to send to another process."""

    __slots__ = ("_columns",)

    def __init__(self) -> None:
        self._columns = array("d")

    def __len__(self) -> int:
        return len(self._columns) // 4

    def __iter__(self) -> Iterator[Call]:
        befores, afters, tokens, waited = (self._columns[column::4] for column in range(4))
        return map(Call, befores, afters, map(int, tokens), map(bool, waited))

    def add(self, before: float, after: float, tokens: int, waited: int) -> None:
        """Add one call, all columns at once, so that another thread never counts half of it."""
        self._columns.extend((before, after, tokens, waited))

    def extend(self, other: "CallLog") -> None:
        """Add the calls of another caller."""
        self._columns.extend(other._columns)


class Caller:
    """One caller's schedule and log, not shared while it calls."""

    __slots__ = ("_costs", "_start", "admitted", "ended", "key", "offered", "refused", "stints")

    def __init__(self, plan: Plan, process: int, number: int, start: float) -> None:
        dice = random.Random(f"{plan.seed} {process * plan.threads + number}")
        self.key = plan.key
        self.stints = list(stints(plan, process, dice.random(), start))
        self._start = start
        self._costs = cycle(dice.sample(plan.costs, len(plan.costs)))
        self.admitted = CallLog()
        self.refused = CallLog()
        self.offered = array("q", bytes(8 * (int(plan.seconds / SPELL) + 1)))
        self.ended = start

    def take_due(self, stint: Stint, now: float) -> list[int]:
        """Return the costs of the due calls, if any; they count as offered."""
        costs = list(islice(self._costs, stint.take_due(now)))
        self.offered[int((now - self._start) / SPELL)] += sum(costs)
        return costs
