"""One thread of a host: it calls the limiter on schedule and logs what it saw.

The calls are open-loop: each is due at an instant of its own, however slow the ones before it were, and a thread that
lags calls at once. A thread wakes at most once a TICK and then makes every call that is due: to wake for each one
would cost the machine more than the calls do.
"""

import random
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from itertools import cycle, islice, pairwise
from typing import NamedTuple

from batchlimit.cli.limiter import Limiter
from batchlimit.cli.plan import Plan

TICK = 0.001
SPELL = 0.01
"""How finely a host notes when it was asked for how much, in seconds."""

# Calls that a thread makes before it looks at the clock again: few enough to end a phase in time.
_MOST_AT_ONCE = 16
# A thread with nothing to do for long still looks now and then whether it should stop.
_LONGEST_SLEEP = 0.2


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
        """Note what another thread saw."""
        self._columns.extend(other._columns)


class Caller:
    """One thread's calls and its log of them; nothing in here is shared while it runs."""

    __slots__ = (
        "_costs", "_key", "_limiter", "_spells", "_start", "_stop", "admitted", "ended", "offered", "refused",
    )  # fmt: skip

    def __init__(
        self, limiter: Limiter, plan: Plan, host: int, thread: int, start: float, stop: threading.Event
    ) -> None:
        dice = random.Random(f"{plan.seed} {host * plan.threads + thread}")
        self._limiter, self._key = limiter, plan.key
        self._start, self._stop = start, stop
        self._spells = list(_schedule(plan, host, dice.random(), start))
        self._costs = cycle(dice.sample(plan.costs, len(plan.costs)))
        self.admitted = CallLog()
        self.refused = CallLog()
        self.offered = array("q", bytes(8 * (int(plan.seconds / SPELL) + 1)))
        self.ended = start

    def run(self) -> None:
        """Make all calls of the plan that the machine can carry in its time, or until told to stop."""
        for begin, end, rate, offset in self._spells:
            time.sleep(max(0.0, begin - time.monotonic()))
            self._keep_up(begin, end, rate, offset)
        self.ended = time.monotonic()

    def _keep_up(self, begin: float, end: float, rate: float, offset: float) -> None:
        made = 0
        while (now := time.monotonic()) < end and not self._stop.is_set():
            due = min(int((now - begin) * rate + offset) - made, _MOST_AT_ONCE)
            if due > 0:
                costs = list(islice(self._costs, due))
                self.offered[int((now - self._start) / SPELL)] += sum(costs)
                self._call(costs)
                made += due
            else:
                next_due = begin + (made + 1 - offset) / rate if rate else end
                time.sleep(min(max(next_due - now, TICK), max(end - now, 0.0), _LONGEST_SLEEP))

    def _call(self, costs: Sequence[int]) -> None:
        clock, try_acquire, tally, key = time.monotonic, self._limiter.try_acquire, self._limiter.tally, self._key
        admitted, refused = self.admitted.add, self.refused.add
        waited = tally.waited
        for cost in costs:
            before = clock()
            note = admitted if try_acquire(key, cost) else refused
            after = clock()
            waited, earlier = tally.waited, waited
            note(before, after, cost, waited - earlier)


def _schedule(plan: Plan, host: int, offset: float, start: float) -> Iterator[tuple[float, float, float, float]]:
    """Each phase of one thread: begin, end, calls/s, and what part of a call is already due at its begin."""
    joins, leaves = plan.stay(host)
    for phase, (begin, end) in zip(plan.phases, pairwise([0.0, *plan.ends]), strict=True):
        if max(begin, joins) < min(end, leaves):
            rate = phase.rate * plan.share(host) / plan.threads
            yield start + max(begin, joins), start + min(end, leaves), rate, offset
