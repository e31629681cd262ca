"""Who waits for a place under a concurrency limit, and in which order."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from batchlimit.core.partition import Partition

Order = Literal["fifo", "lifo"]
"""The longest waiting first; or the newest, of which more are still wanted when their turn comes."""


@dataclass(frozen=True, slots=True)
class Queue:
    """How many may wait at most (`length`), for how long (`max_wait`, seconds; None: no limit), and who is next."""

    length: int = 100
    max_wait: float | None = 1.0
    order: Order = "fifo"

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int):
            raise TypeError(f"the length of a queue must be a whole number, not {self.length!r}")
        if self.length < 0:
            raise ValueError(f"the length of a queue must be at least 0, not {self.length}")
        if self.max_wait is not None and (
            isinstance(self.max_wait, bool) or not isinstance(self.max_wait, int | float)
        ):
            raise TypeError(f"max_wait must be a number of seconds, or None, not {self.max_wait!r}")
        if self.max_wait is not None and not (math.isfinite(self.max_wait) and self.max_wait >= 0):
            raise ValueError(f"max_wait must be at least 0 seconds, or None, not {self.max_wait!r}")
        if self.order not in get_args(Order):
            raise ValueError(f"the order of a queue must be 'fifo' or 'lifo', not {self.order!r}")

    def patience(self, timeout: float) -> float:
        """Return for how many seconds somebody may wait here whose own timeout this is; 0 where nobody may."""
        longest = math.inf if self.max_wait is None else self.max_wait
        return min(timeout, longest) if self.length else 0.0


NO_QUEUE = Queue(length=0)
"""Nobody waits."""

_FEW = 64
"""So many who are gone may stay in the lines, and as many as wait: to sweep them costs a step for each of those."""


class Waiter:
    """One who waits. It is served once, or gives up; whichever comes first is final."""

    __slots__ = ("gate", "in_flight", "number", "partition", "served", "start_ns", "waiting", "wake")

    partition: Partition

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.gate: object = None
        self.number = 0
        self.waiting = self.served = False
        self.start_ns = self.in_flight = 0

    def __repr__(self) -> str:
        state = "served" if self.served else "waiting" if self.waiting else "gone"
        return f"<Waiter {self.number}: {state}>"

    def serve(self, now_ns: int, in_flight: int) -> None:
        """Be under way from now on, as one of so many."""
        self.served, self.start_ns, self.in_flight = True, now_ns, in_flight


class Waiting:
    """All who wait, by partition. Who gave up amid a line stays there for a while, and is skipped."""

    __slots__ = ("_gone", "_lines", "_newest_first", "_numbers", "count")

    def __init__(self, order: Order) -> None:
        self._newest_first = order == "lifo"
        self._lines: dict[Partition, deque[Waiter]] = {}
        self._numbers = self._gone = 0
        self.count = 0

    def add(self, waiter: Waiter) -> None:
        self._numbers += 1
        waiter.number, waiter.waiting = self._numbers, True
        self._lines.setdefault(waiter.partition, deque()).append(waiter)
        self.count += 1

    def remove(self, waiter: Waiter) -> None:
        """Take one out who waits no longer, served or not."""
        waiter.waiting = False
        self.count -= 1
        self._gone += 1
        self._tidy(waiter.partition)
        if self._gone > self.count + _FEW:
            for partition in list(self._lines):
                self._lines[partition] = deque(each for each in self._lines[partition] if each.waiting)
            self._gone = 0

    def _tidy(self, partition: Partition) -> None:
        """Let a line begin and end with who waits; let go of an empty one."""
        line = self._lines[partition]
        for end, drop in ((0, line.popleft), (-1, line.pop)):
            while line and not line[end].waiting:
                drop()
                self._gone -= 1
        if not line:
            del self._lines[partition]

    def heads(self) -> Iterator[Waiter]:
        """Yield who is next of each partition: first of those under their guarantee, then by the order of the queue."""
        heads = [line[-1 if self._newest_first else 0] for line in self._lines.values()]
        sign = -1 if self._newest_first else 1
        return iter(sorted(heads, key=lambda w: (w.partition.busy >= w.partition.guaranteed, sign * w.number)))

    def clear(self) -> list[Waiter]:
        """Send all away; return them."""
        gone = [waiter for line in self._lines.values() for waiter in line if waiter.waiting]
        for waiter in gone:
            waiter.waiting = False
        self._lines.clear()
        self.count = self._gone = 0
        return gone
