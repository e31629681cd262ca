"""One caller of a host, a thread or a task: which calls it makes, and its log of what it saw."""

import random
from array import array
from collections.abc import Iterator
from itertools import cycle, islice, pairwise
from typing import NamedTuple

from batchlimit.fleet.plan import Plan

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


SPELL = 0.01
"""How finely a host notes when it was asked for how much, in seconds."""


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
        """Note one call; all of it at once, so that a reader who counts never sees half of it."""
        self._columns.extend((before, after, tokens, waited))

    def extend(self, other: "CallLog") -> None:
        """Note what another caller saw."""
        self._columns.extend(other._columns)


class Caller:
    """One caller's schedule and log; nothing in here is shared while it calls, waits or reads a clock."""

    __slots__ = ("_costs", "_start", "admitted", "ended", "key", "offered", "refused", "stints")

    def __init__(self, plan: Plan, host: int, number: int, start: float) -> None:
        dice = random.Random(f"{plan.seed} {host * plan.threads + number}")
        self.key = plan.key
        self.stints = list(stints(plan, host, dice.random(), start))
        self._start = start
        self._costs = cycle(dice.sample(plan.costs, len(plan.costs)))
        self.admitted = CallLog()
        self.refused = CallLog()
        self.offered = array("q", bytes(8 * (int(plan.seconds / SPELL) + 1)))
        self.ended = start

    def take_due(self, stint: Stint, now: float) -> list[int]:
        """Return the costs of the calls to make at once, if any; they count as asked for."""
        costs = list(islice(self._costs, stint.take_due(now)))
        self.offered[int((now - self._start) / SPELL)] += sum(costs)
        return costs
