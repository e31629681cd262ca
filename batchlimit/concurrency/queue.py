"""The queue of a concurrency limit: who may wait for a place, and who is next."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

from batchlimit.base.setting import between, whole
from batchlimit.concurrency.partition import Partition

Order = Literal["fifo", "lifo"]
"""The longest waiting first; or the newest, of which more are still wanted when their turn comes."""


@dataclass(frozen=True, slots=True)
class Queue:
    """How many callers may wait, for how long, and who is next.

    Callers of higher priority are served first, but every eighth place goes to who has waited longest. In a full queue
    they take the places of the last ones of the lowest priority ("queue_full"), all but an eighth of the queue.

    Args:
        length: How many may wait at most (callers, default 100; 0: nobody waits).
        max_wait: How long each may wait at most (seconds, default 1.0; None: no limit).
        order: Which of equal priority is next: "fifo" (default) serves the longest waiting first; "lifo" the newest,
            more of which are still wanted then.

    Raises:
        TypeError, ValueError: `length` is no whole number from 0, `max_wait` no number from 0, or `order` another one.

    Example:
        >>> from batchlimit import ConcurrencyLimiter, Queue
        >>> from batchlimit.laws import Fixed
        >>> with ConcurrencyLimiter(Fixed(20), queue=Queue(50, max_wait=0.5)) as limiter:
        ...     limiter.acquire(timeout=0.1).success()
    """

    length: int = 100
    max_wait: float | None = 1.0
    order: Order = "fifo"

    def __post_init__(self) -> None:
        whole("the length of a queue (callers)", self.length, 0, math.inf)
        between("max_wait (seconds)", 0.0 if self.max_wait is None else self.max_wait, 0.0, math.inf, "[)")
        if self.order not in get_args(Order):
            raise ValueError(f"the order of a queue must be 'fifo' or 'lifo', not {self.order!r}")

    def patience(self, timeout: float) -> float:
        """Return for how long a caller may wait here.

        Args:
            timeout: The timeout of the caller (seconds).

        Returns:
            The shorter of `timeout` and `max_wait` (seconds); 0 if nobody may wait here.
        """
        if not self.length:
            return 0.0
        return timeout if self.max_wait is None else min(timeout, self.max_wait)


NO_QUEUE = Queue(length=0)
"""The queue in which nobody waits."""


class RankedWaiter:
    """A caller that waits: how to wake it, its priority, and the how-manieth it is among those who came."""

    __slots__ = ("number", "priority", "wake")

    def __init__(self, wake: Callable[[], object], priority: int) -> None:
        self.wake, self.priority, self.number = wake, priority, 0  # RuntimeError of `wake`: nobody is there any more


class GateWaiter(RankedWaiter):
    """A caller at a gate. It is served once, or gives up, or is displaced; whichever comes first is final."""

    __slots__ = (
        "displaced", "gate", "in_flight", "marker", "partition", "served", "since_ns", "start_ns", "waiting",
    )  # fmt: skip

    partition: Partition

    def __init__(self, wake: Callable[[], object], priority: int = 0) -> None:
        super().__init__(wake, priority)
        self.gate: object = None
        self.marker: object = None  # the partition's, while it is served and its permit is not held yet
        self.waiting = self.served = self.displaced = False
        self.start_ns = self.in_flight = 0
        self.since_ns: int | None = None  # since when it waits; None: it does not


SHARE = 8
"""One of so many places goes to who has waited longest, whatever the priorities: the lowest ones are served too. And
higher priorities leave a part of the queue to lower ones."""


W = TypeVar("W", bound=RankedWaiter)


class Ranks(Generic[W]):
    """Waiters by priority, and in order. A signal handler that raises may leave a priority behind that has nobody."""

    __slots__ = ("_by_priority", "_newest_first")

    def __init__(self, newest_first: bool) -> None:
        self._newest_first = newest_first
        # Not of dicts: of these the first is as far to seek as many who came before it left.
        self._by_priority: dict[int, OrderedDict[W, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_priority.values()))

    def __iter__(self) -> Iterator[W]:
        return iter([waiter for each in self._by_priority.values() for waiter in each])

    def __contains__(self, waiter: W) -> bool:
        return waiter in self._by_priority.get(waiter.priority, ())

    @property
    def priorities(self) -> frozenset[int]:
        """The priorities of those who wait."""
        return frozenset(self._by_priority)

    def add(self, waiter: W) -> None:
        """Let one more wait."""
        self._by_priority.setdefault(waiter.priority, OrderedDict())[waiter] = None

    def remove(self, waiter: W) -> bool:
        """Let one wait no longer; return whether it did."""
        equals = self._by_priority.get(waiter.priority)
        if equals is None or waiter not in equals:
            return False
        equals.pop(waiter, None)
        if not equals:
            self._by_priority.pop(waiter.priority, None)
        return True

    def below(self, priority: int) -> int:
        """Return how many wait whose priority is lower."""
        return sum(len(each) for rank, each in self._by_priority.items() if rank < priority)

    def oldest(self) -> W:
        """Return who has waited longest; not if nobody waits."""
        return min((next(iter(each)) for each in self._by_priority.values() if each), key=lambda waiter: waiter.number)

    def head(self) -> W:
        """Return who is next: of the highest priority; not if nobody waits."""
        highest = self._by_priority[max(rank for rank, each in self._by_priority.items() if each)]
        return next(reversed(highest) if self._newest_first else iter(highest))

    def from_last(self) -> Iterator[W]:
        """Yield those who wait, the lowest priority first, and of each who would be the last to be served first."""
        for _rank, equals in sorted(self._by_priority.items()):
            yield from equals if self._newest_first else reversed(equals)


class Waiting:
    """All waiters in order, by partition and priority. A signal may end any call, so `count` is anew each time."""

    __slots__ = ("_lines", "_newest_first", "_numbers", "_served", "count")

    def __init__(self, order: Order) -> None:
        self._newest_first = order == "lifo"
        self._lines: dict[Partition, Ranks[GateWaiter]] = {}
        self._served = self._numbers = 0
        self.count = 0

    def add(self, waiter: GateWaiter) -> None:
        self._numbers += 1
        waiter.number, waiter.waiting = self._numbers, True
        self._lines.setdefault(waiter.partition, Ranks(self._newest_first)).add(waiter)
        self.recount()

    def remove(self, waiter: GateWaiter) -> None:
        """Remove a waiter, served or not; nothing changes if it was removed before."""
        waiter.waiting = False
        line = self._lines.get(waiter.partition)
        if line is not None:
            line.remove(waiter)
            if not line:
                self._lines.pop(waiter.partition, None)
        self.recount()

    def of(self, partition: Partition) -> int:
        """Return how many waiters are of this partition."""
        return len(self._lines.get(partition, ()))

    def pass_turn(self) -> None:
        """Count the place that a waiter gets, before it leaves."""
        if self._has_several_priorities():
            self._served += 1

    def heads(self) -> Sequence[GateWaiter]:
        """Return the next waiter of each partition: those under their guarantee first, then by priority and order."""
        by_age = self._served % SHARE == SHARE - 1 and self._has_several_priorities()
        heads = [line.oldest() if by_age else line.head() for line in self._lines.values() if line]
        if len(heads) > 1:
            sign = -1 if self._newest_first and not by_age else 1
            rank = 0 if by_age else -1
            heads.sort(key=lambda w: (w.partition.busy >= w.partition.guaranteed, rank * w.priority, sign * w.number))
        return heads

    def displaced_by(self, priority: int, length: int) -> GateWaiter | None:
        """Return the last of the lowest priority without a kept share, if one of this priority takes its place."""
        lines = [line for place, line in self._lines.items() if line and place.busy >= place.guaranteed]
        if sum(line.below(priority) for line in lines) <= length // SHARE:
            return None
        sign = 1 if self._newest_first else -1
        return min(
            (next(line.from_last()) for line in lines), key=lambda waiter: (waiter.priority, sign * waiter.number)
        )

    def _has_several_priorities(self) -> bool:
        first, *others = [line.priorities for line in self._lines.values()] or [frozenset()]
        return len(first.union(*others)) > 1

    def recount(self) -> None:
        """Count who waits."""
        self.count = sum(map(len, self._lines.values()))
