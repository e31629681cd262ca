"""The waiters for tokens, in the order in which they are served, and those to wake."""

import math
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from batchlimit.base.waiting import NO_WAIT
from batchlimit.reservoir.depths import ALL_LATE, NONE_LATE, Depths, Horizon
from batchlimit.reservoir.waiter import NOBODY, Admit, Verdict, Waiter

_NOBODY: dict[int, Waiter] = {}
"""An empty queue's, one for all of them: most are empty, and lists of their own took 112 bytes a key."""
_NO_NUMBERS: list[int] = []
_NO_SET: set[int] = set()
_NONE: list[Waiter] = []
_NO_LINES: "dict[int, WaitQueue]" = {}
_STALE = 64
"""So many numbers of waiters that have left are kept in any case."""


class Turns:
    """Whose turn is next among waiters of several priorities: fair queueing by weights.

    Each priority has a line of its own, in order of arrival, and a time. Served tokens move the time of their line on,
    by 1 / priority each. The line whose time would be the earliest after its first waiter is next. So callers of
    priority 10 pass those of priority 1, and of eleven tokens one is for these all the same. A line that was empty
    begins at the time of the line that was served last: nobody saves turns up.
    """

    __slots__ = ("_now", "_times")

    def __init__(self) -> None:
        self._now = 0.0
        self._times = {1: 0.0}

    def begin(self, priority: int) -> None:
        """Take note that somebody joins a line that was empty."""
        self._times[priority] = max(self._now, self._times.get(priority, self._now))

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


class WaitQueue:
    """A queue of waiters. Its leader watches the clock, and sends the requests, for all: so one caller is always awake.

    No question looks at every waiter, however many there are: see Depths. Waiters of a priority above 1 have lines of
    their own, and take turns with the others: see Turns. Each line finds its late waiters alone.
    """

    __slots__ = (
        "_awake", "_debtor", "_depths", "_hasty", "_lines", "_numbers", "_priority", "_turns", "cost",
        "last", "waiters",
    )  # fmt: skip

    def __init__(self, priority: int = 1) -> None:
        self._priority = priority  # of waiters that have no line of their own: the lowest
        self._awake = _NONE
        self.last = 0  # the number of the waiter who came last
        self._debtor: Waiter | None = None  # a debt, with which nobody waits: one at the most
        self._clear()

    def _clear(self) -> None:
        self.waiters = _NOBODY  # by number
        self._numbers = _NO_NUMBERS  # a heap of those of priority 1, without the debtor, and of some who have left
        self._lines = _NO_LINES  # of higher priorities
        self._turns: Turns | None = None  # from the first waiter of a higher priority on
        self._hasty = _NO_SET  # the numbers of those who take the first answer
        self._depths: Depths | None = None  # from the first question on that takes it
        self.cost = 0  # what all of them ask for, in tokens

    def __len__(self) -> int:
        return len(self.waiters)

    def __iter__(self) -> Iterator[Waiter]:
        """Go through a copy: a waiter may be dismissed on the way."""
        return iter([self.waiters[number] for number in sorted(self.waiters)])

    def __contains__(self, waiter: Waiter) -> bool:
        return self.waiters.get(waiter.number) is waiter

    @property
    def first(self) -> Waiter | None:
        """The waiter who is served next."""
        first, debtor = self._first_of_usual(), self._debtor
        if debtor is not None and (first is None or debtor.number < first.number):
            first = debtor
        return first if self._turns is None else self._next(self._turns, first)

    @property
    def leader(self) -> Waiter | None:
        """The first with whom somebody waits: with a debt nobody does."""
        first = self._first_of_usual()
        return first if self._turns is None else self._next(self._turns, first)

    @property
    def highest_priority(self) -> int:
        """The highest of those who wait."""
        return max((priority for priority, line in self._lines.items() if line.waiters), default=1)

    @property
    def hasty(self) -> list[Waiter]:
        """The waiters who take the first answer, in their order."""
        return list(filter(None, map(self.waiters.get, sorted(self._hasty))))

    def join(self, waiter: Waiter) -> None:
        """Put a waiter last of its priority; or, if it was here before, in its old place, ahead of later ones."""
        if waiter.number and waiter in self:
            return
        number = waiter.number = waiter.number or self.last + 1
        self.last = max(self.last, number)
        if not self.waiters:
            self._clear()  # whoever left last may have been interrupted
            self.waiters, self._numbers = {}, []
        if waiter.deadline == NO_WAIT:
            self._hasty = self._hasty or set()
            self._hasty.add(number)
        if waiter.event is NOBODY:
            self._debtor = waiter
        elif waiter.priority == self._priority:
            heappush(self._numbers, number)
        if self._depths is not None and waiter.priority == self._priority:
            self._depths.changed(number)
        self.waiters[number] = waiter
        self.cost += waiter.cost
        if waiter.priority != self._priority or self._turns is not None:
            self._take_turns(waiter)

    @property
    def tokens(self) -> int:
        """What all of them ask for, and what a debt will ask for later."""
        return self.cost + (self._debtor.beyond if self._debtor is not None else 0)

    def ahead_of(self, waiter: Waiter) -> int:
        """Return how many tokens the waiters before this one ask for, of its own line."""
        if waiter.priority != self._priority:
            return line.ahead_of(waiter) if (line := self._lines.get(waiter.priority)) is not None else 0
        if waiter.number == self.last and self._turns is None:
            return self.tokens - waiter.cost - waiter.beyond
        return self._measured().ahead_of(waiter.number)

    def is_late(self, waiter: Waiter, horizon: Horizon) -> bool:
        """Whether a waiter in the queue cannot be served in time."""
        if waiter.deadline < horizon.until or horizon is ALL_LATE:
            return True
        if horizon is NONE_LATE or waiter.deadline == math.inf:
            return False
        return horizon.since + (self.ahead_of(waiter) + waiter.cost) * horizon.seconds > waiter.deadline

    def first_late(self, horizon: Horizon) -> Waiter | None:
        """Return the first waiter that cannot be served in time."""
        if not self.waiters or horizon is NONE_LATE:
            return None
        if horizon is ALL_LATE or len(self.waiters) == 1:
            return leader if (leader := self.leader) is not None and self.is_late(leader, horizon) else None
        number = self._measured(horizon.seconds).first_late(horizon)
        if number is not None:
            return self.waiters[number]
        return next(filter(None, (line.first_late(horizon) for line in self._lines.values())), None)

    def resize(self, waiter: Waiter, cost: int, beyond: int) -> None:
        """Have a waiter ask for more or less, in its place, and for some more when it has got that."""
        if waiter in self:
            self.cost += cost - waiter.cost
            if self._depths is not None:
                self._depths.changed(waiter.number)
        waiter.cost, waiter.beyond = cost, beyond

    def dismiss(self, waiter: Waiter, verdict: Verdict) -> None:
        """Tell a waiter its verdict, and let it go: in this order, so that no waiter is ever lost without one."""
        waiter.verdict = verdict
        self.wake(waiter)
        if self._turns is not None and isinstance(verdict, Admit):
            self._turns.served(waiter)
        if self.waiters.get(waiter.number) is waiter:
            self._remove(waiter)

    def withdraw(self, waiter: Waiter) -> None:
        """Let a waiter go that has its verdict, if it ever joined; if it was the leader, another is now."""
        if waiter in self:
            self._remove(waiter)
            self.wake_leader()

    def wake_leader(self) -> None:
        """Have the leader look at the clock again."""
        if (leader := self.leader) is not None and not (self._awake and self._awake[-1] is leader):
            self.wake(leader)

    def wake(self, waiter: Waiter) -> None:
        """Have a caller look again, who need not be in the queue."""
        self._awake = self._awake or []
        self._awake.append(waiter)

    def to_wake(self) -> list[Waiter]:
        """Return whom to wake since the last call."""
        awake, self._awake = self._awake, _NONE
        return awake

    def _remove(self, waiter: Waiter) -> None:
        if self._debtor is waiter:
            self._debtor = None
        if len(self.waiters) == 1:
            self._clear()
            return
        if waiter.priority != self._priority:
            line = self._lines.get(waiter.priority)  # none where whoever joined was interrupted
            if line is not None and waiter in line:
                line._remove(waiter)
        elif self._depths is not None:
            self._depths.left(waiter.number)
        if waiter.deadline == NO_WAIT:
            self._hasty.discard(waiter.number)
        del self.waiters[waiter.number]
        self.cost -= waiter.cost
        if len(self._numbers) > 2 * len(self.waiters) + _STALE:
            self._numbers = sorted(number for number in self._usual() if self.waiters[number] is not self._debtor)

    def _usual(self) -> list[int]:
        """Return the numbers of the waiters of the lowest priority."""
        return [number for number, each in self.waiters.items() if each.priority == self._priority]

    def _first_of_usual(self) -> Waiter | None:
        while self._numbers:
            if (first := self.waiters.get(self._numbers[0])) is not None:
                return first
            heappop(self._numbers)
        return None

    def _next(self, turns: Turns, first: Waiter | None) -> Waiter | None:
        return turns.next([first, *(line._first_of_usual() for line in self._lines.values())])

    def _take_turns(self, waiter: Waiter) -> None:
        """Put a waiter in the line of its priority."""
        turns, priority = self._turns or Turns(), waiter.priority
        self._turns, self._lines = turns, self._lines or {}
        if priority != self._priority:
            line = self._lines.setdefault(priority, WaitQueue(priority))
            line.join(waiter)
            first = line.leader
        else:
            first = self._first_of_usual()
        if first in (waiter, None):
            turns.begin(priority)

    def _measured(self, seconds: float | None = None) -> Depths:
        """Return the tree as it is now; `seconds` is how long a token takes to refill, if that is asked."""
        if self._depths is None or seconds not in (None, self._depths.seconds):
            self._depths = Depths(self._usual(), seconds or 0.0)
        self._depths.update(self.waiters)
        return self._depths
