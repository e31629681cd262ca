"""The queue of a concurrency limit: who may wait for a place, and who is next."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
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

    __slots__ = ("number", "priority", "waiting", "wake")

    partition = Partition("")  # of all who wait where there are no parts
    is_patient = True  # or it waits for an answer alone, and takes no place in the queue

    def __init__(self, wake: Callable[[], object], priority: int) -> None:
        self.wake, self.priority, self.number = wake, priority, 0  # RuntimeError of `wake`: nobody is there any more
        self.waiting = False


class GateWaiter(RankedWaiter):
    """A caller at a gate. It is served once, or gives up, or is displaced; whichever comes first is final."""

    __slots__ = ("displaced", "gate", "in_flight", "marker", "partition", "served", "since_ns", "start_ns")

    partition: Partition

    def __init__(self, wake: Callable[[], object], priority: int = 0) -> None:
        super().__init__(wake, priority)
        self.gate: object = None
        self.marker: object = None  # the partition's, while it is served and its permit is not held yet
        self.served = self.displaced = False
        self.start_ns = self.in_flight = 0
        self.since_ns: int | None = None  # since when it waits; None: it does not


SHARE = 8
"""One of so many places goes to who has waited longest, whatever the priorities: the lowest ones are served too. And
higher priorities leave a part of the queue to lower ones."""


W = TypeVar("W", bound=RankedWaiter)


class Waiting(Generic[W]):
    """All who wait at a gate, or for a key: those of one partition and priority in the order in which they came.

    A signal handler may end any call, and leave a line that has nobody. So `count` is anew each time.
    """

    __slots__ = ("_lines", "_numbers", "_served", "count", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        # Not of dicts: of these the first is as far to seek as many who came before it left.
        self._lines: dict[tuple[Partition, int], OrderedDict[W, None]] = {}
        self._served = self._numbers = 0
        self.count = 0

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[W]:
        return iter([waiter for line in self._lines.values() for waiter in line])

    def __contains__(self, waiter: W) -> bool:
        return waiter in self._lines.get((waiter.partition, waiter.priority), ())

    def recount(self) -> None:
        self.count = len(self)

    def add(self, waiter: W) -> None:
        self._numbers += 1
        waiter.number, waiter.waiting = self._numbers, True
        self._lines.setdefault((waiter.partition, waiter.priority), OrderedDict())[waiter] = None
        self.recount()

    def remove(self, waiter: W) -> None:
        """Let one wait no longer, served or not; a second time it changes nothing."""
        waiter.waiting = False
        place = waiter.partition, waiter.priority
        if (line := self._lines.get(place)) is not None:
            line.pop(waiter, None)
            if not line:
                self._lines.pop(place, None)
        self.recount()

    def of(self, partition: Partition) -> int:
        """Return how many waiters are of this partition."""
        return sum(len(line) for (place, _), line in self._lines.items() if place is partition)

    def oldest(self) -> W:
        """Return who has waited longest; not if nobody waits."""
        return min((next(iter(line)) for line in self._lines.values() if line), key=lambda waiter: waiter.number)

    def pass_turn(self) -> None:
        """Count the place that a waiter gets, before it leaves."""
        if self._has_several_priorities():
            self._served += 1

    def heads(self) -> Sequence[W]:
        """Return who may be next: those under their guarantee first, then by priority and order."""
        by_age = self._served % SHARE == SHARE - 1 and self._has_several_priorities()
        newest_first = self.queue.order == "lifo" and not by_age
        lines = self._lines.values() if by_age else self._highest()
        heads = [next(reversed(line) if newest_first else iter(line)) for line in lines if line]
        if len(heads) > 1:
            sign, rank = -1 if newest_first else 1, 0 if by_age else -1
            heads.sort(key=lambda w: (w.partition.busy >= w.partition.guaranteed, rank * w.priority, sign * w.number))
        return heads

    def _highest(self) -> Iterable[OrderedDict[W, None]]:
        """Return the line of the highest priority of each partition: where its first may not enter, no other may."""
        highest: dict[Partition, int] = {}
        for (place, priority), line in self._lines.items():
            if priority >= highest.get(place, priority) and line:
                highest[place] = priority
        return map(self._lines.__getitem__, highest.items())

    def displaced_by(self, priority: int) -> W | None:
        """Return who leaves a full queue for one of this priority: the last of the lowest one without a kept share."""
        lower = [
            line for (place, rank), line in self._lines.items() if rank < priority and place.busy >= place.guaranteed
        ]
        if sum(map(len, lower)) <= self.queue.length // SHARE:
            return None
        is_lifo = self.queue.order == "lifo"
        from_last = [iter(line) if is_lifo else reversed(line) for line in lower]
        sign = 1 if is_lifo else -1
        last_first = merge(*from_last, key=lambda waiter: (waiter.priority, sign * waiter.number))
        return next((waiter for waiter in last_first if waiter.is_patient), None)

    def _has_several_priorities(self) -> bool:
        return len({priority for _, priority in self._lines}) > 1
