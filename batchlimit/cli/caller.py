"""One caller of a host, a thread or a task: which calls it makes, and its log of what it saw."""

import random
from array import array
from collections.abc import Iterator
from itertools import cycle, islice
from typing import NamedTuple

from batchlimit.cli.plan import Plan
from batchlimit.cli.schedule import Stint, stints

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
