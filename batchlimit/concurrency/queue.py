"""The queue of a concurrency limit: who may wait for a place, and in which order waiters are served."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from batchlimit.concurrency.partition import Partition

Order = Literal["fifo", "lifo"]
"""The longest waiting first; or the newest, of which more are still wanted when their turn comes."""


@dataclass(frozen=True, slots=True)
class Queue:
    """How many callers may wait, for how long, and who is next.

    Args:
        length: How many may wait at most (callers, default 100; 0: nobody waits).
        max_wait: How long each may wait at most (seconds, default 1.0; None: no limit).
        order: "fifo" (default) serves the longest waiting first; "lifo" the newest, more of which are still wanted
            then.

    Raises:
        TypeError: `length` is no whole number, or `max_wait` no number.
        ValueError: `length` or `max_wait` is below 0 or not finite, or `order` is neither of the two.

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
        """Return for how long a caller may wait here.

        Args:
            timeout: The timeout of the caller (seconds).

        Returns:
            The shorter of `timeout` and `max_wait` (seconds); 0 if nobody may wait here.
        """
        longest = math.inf if self.max_wait is None else self.max_wait
        return min(timeout, longest) if self.length else 0.0


NO_QUEUE = Queue(length=0)
"""The queue in which nobody waits."""


class Waiter:
    """A caller that waits. It is served once, or gives up; whichever comes first is final."""

    __slots__ = ("gate", "in_flight", "number", "partition", "served", "since_ns", "start_ns", "waiting", "wake")

    partition: Partition

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.gate: object = None
        self.number = 0
        self.waiting = self.served = False
        self.start_ns = self.in_flight = 0
        self.since_ns: int | None = None  # since when it waits; None: it does not

    def __repr__(self) -> str:
        state = "served" if self.served else "waiting" if self.waiting else "gone"
        return f"<Waiter {self.number}: {state}>"


class Waiting:
    """All waiters, by partition, in the order in which they came. One more or less costs the same however many wait.

    A signal handler may raise wherever a function is called, and the garbage collector may complete a permit there. So
    the waiters in the lines are the truth: `count` is computed anew after each change, and a waiter that is gone is
    skipped.
    """

    __slots__ = ("_lines", "_newest_first", "_numbers", "count")

    def __init__(self, order: Order) -> None:
        self._newest_first = order == "lifo"
        # Not a dict: of that the first is as far to seek as many who came before it left.
        self._lines: dict[Partition, OrderedDict[Waiter, None]] = {}
        self._numbers = 0
        self.count = 0

    def add(self, waiter: Waiter) -> None:
        self._numbers += 1
        waiter.number, waiter.waiting = self._numbers, True
        self._lines.setdefault(waiter.partition, OrderedDict())[waiter] = None
        self._count()

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter, served or not; nothing changes if it was removed before."""
        waiter.waiting = False
        line = self._lines.get(waiter.partition)
        if line is not None:
            line.pop(waiter, None)
            if not line:
                self._lines.pop(waiter.partition, None)
        self._count()

    def of(self, partition: Partition) -> int:
        """Return how many waiters are of this partition."""
        return len(self._lines.get(partition, ()))

    def heads(self) -> Sequence[Waiter]:
        """Return the next waiter of each partition: those under their guarantee first, then by the order."""
        lines = list(self._lines.values())
        heads = [next(reversed(line) if self._newest_first else iter(line)) for line in lines if line]
        if len(heads) > 1:
            sign = -1 if self._newest_first else 1
            heads.sort(key=lambda w: (w.partition.busy >= w.partition.guaranteed, sign * w.number))
        return heads

    def _count(self) -> None:
        self.count = sum(map(len, self._lines.values()))
