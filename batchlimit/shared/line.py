"""Who waits in this process for a place at one key."""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from batchlimit.concurrency.queue import Queue
from batchlimit.shared.lease import Place


class Waiter:
    """A caller that waits: it gets a place, or an error, or gives up; whichever comes first is final.

    Attributes:
        wake: Ends its wait, from any thread; RuntimeError if nobody can be woken any more.
        is_patient: Whether it waits for a release; else for the store's first answer alone.
        asks: How many asks had been sent when it came: only the answer to a later one concerns it.
        place: What it got.
        error: Why it gets nothing.
    """

    __slots__ = ("asks", "error", "is_patient", "place", "wake")

    def __init__(self, wake: Callable[[], object], is_patient: bool) -> None:
        self.wake, self.is_patient = wake, is_patient
        self.asks = 0
        self.place: Place | None = None
        self.error: Exception | None = None

    def __repr__(self) -> str:
        return f"<Waiter {'served' if self.place else 'refused' if self.error else 'waiting'}>"


class Line:
    """All waiters, in the order in which they came."""

    __slots__ = ("_newest_first", "_waiters", "patient", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._newest_first = queue.order == "lifo"
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.patient = 0
        """How many of them are patient."""

    def __repr__(self) -> str:
        return f"<Line of {len(self)}>"

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(list(self._waiters))

    @property
    def first(self) -> Waiter:
        """The one who came first; not for an empty line."""
        return next(iter(self._waiters))

    @property
    def is_full(self) -> bool:
        """Whether no patient waiter may join."""
        return self.patient >= self.queue.length

    def add(self, waiter: Waiter) -> None:
        """Join at the end."""
        self._waiters[waiter] = None
        self.patient += waiter.is_patient

    def remove(self, waiter: Waiter) -> None:
        """Leave; a second time it changes nothing."""
        if waiter in self._waiters:
            del self._waiters[waiter]
            self.patient -= waiter.is_patient

    def next(self) -> Waiter:
        """Return the one to serve next, which leaves."""
        waiter, _ = self._waiters.popitem(last=self._newest_first)
        self.patient -= waiter.is_patient
        return waiter
