"""Who waits in this process for a place at one key."""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from batchlimit.concurrency.queue import Queue
from batchlimit.shared.lease import Place

_SHARE = 8
"""One of so many places goes to who has waited longest, whatever the priorities: the lowest ones are served too."""


class Waiter:
    """A caller that waits: it gets a place, or an error, or gives up; whichever comes first is final.

    Attributes:
        wake: Ends its wait, from any thread; RuntimeError if nobody can be woken any more.
        is_patient: Whether it waits for a release; else for the store's first answer alone.
        priority: Higher ones are served first.
        number: The how-manieth it is in its line.
        asks: How many asks had been sent when it came: only the answer to a later one concerns it.
        place: What it got.
        error: Why it gets nothing.
    """

    __slots__ = ("asks", "error", "is_patient", "number", "place", "priority", "wake")

    def __init__(self, wake: Callable[[], object], is_patient: bool, priority: int = 0) -> None:
        self.wake, self.is_patient, self.priority = wake, is_patient, priority
        self.asks = self.number = 0
        self.place: Place | None = None
        self.error: Exception | None = None

    def __repr__(self) -> str:
        return f"<Waiter {'served' if self.place else 'refused' if self.error else 'waiting'}>"


class Line:
    """All waiters: by priority, and of equal ones in the order in which they came.

    Attributes:
        queue: How many may wait, and who is next.
        patient: How many of them are patient.
    """

    __slots__ = ("_by_priority", "_count", "_newest_first", "_numbers", "_turns", "patient", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._newest_first = queue.order == "lifo"
        self._by_priority: dict[int, OrderedDict[Waiter, None]] = {}
        self._count = self._numbers = self._turns = 0
        self.patient = 0

    def __repr__(self) -> str:
        return f"<Line of {len(self)}>"

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Waiter]:
        return iter([waiter for each in self._by_priority.values() for waiter in each])

    def __contains__(self, waiter: Waiter) -> bool:
        return waiter in self._by_priority.get(waiter.priority, ())

    @property
    def first(self) -> Waiter:
        """The one who came first; not for an empty line."""
        return min((next(iter(each)) for each in self._by_priority.values()), key=lambda waiter: waiter.number)

    @property
    def is_full(self) -> bool:
        """Whether no patient waiter may join."""
        return self.patient >= self.queue.length

    def add(self, waiter: Waiter) -> None:
        """Join."""
        self._numbers += 1
        waiter.number = self._numbers
        self._by_priority.setdefault(waiter.priority, OrderedDict())[waiter] = None
        self._count += 1
        self.patient += waiter.is_patient

    def remove(self, waiter: Waiter) -> None:
        """Leave; a second time it changes nothing."""
        if waiter not in self:
            return
        equals = self._by_priority[waiter.priority]
        del equals[waiter]
        if not equals:
            del self._by_priority[waiter.priority]
        self._count -= 1
        self.patient -= waiter.is_patient

    def refuse(self, waiters: list[Waiter], error: Exception) -> list[Waiter]:
        """Remove these, with an error; return them, to be woken."""
        for waiter in waiters:
            self.remove(waiter)
            waiter.error = error
        return waiters

    def next(self) -> Waiter:
        """Return the one to serve next, which leaves."""
        waiter = self._chosen()
        self.remove(waiter)
        return waiter

    def _chosen(self) -> Waiter:
        if len(self._by_priority) > 1:
            self._turns += 1
            if self._turns % _SHARE == 0:
                return self.first
        highest = self._by_priority[max(self._by_priority)]
        return next(reversed(highest) if self._newest_first else iter(highest))
