"""The waiters of this process for a place at one key."""

from collections.abc import Callable, Iterator

from batchlimit.concurrency.queue import Queue
from batchlimit.concurrency.ranks import OldestTurn, Ranks, kept_for_lower
from batchlimit.shared.lease import Place


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

    __slots__ = ("_numbers", "_ranks", "_turn", "patient", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._ranks: Ranks[Waiter] = Ranks(newest_first=queue.order == "lifo")
        self._turn = OldestTurn()
        self._numbers = 0
        self.patient = 0

    def __repr__(self) -> str:
        return f"<Line of {len(self)}>"

    def __bool__(self) -> bool:
        return bool(self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._ranks)

    def __contains__(self, waiter: Waiter) -> bool:
        return waiter in self._ranks

    @property
    def first(self) -> Waiter:
        """The one who came first; not for an empty line."""
        return self._ranks.oldest()

    @property
    def is_full(self) -> bool:
        """Whether no patient waiter may join."""
        return self.patient >= self.queue.length

    def add(self, waiter: Waiter) -> None:
        """Join."""
        self._numbers += 1
        waiter.number = self._numbers
        self._ranks.add(waiter)
        self.patient += waiter.is_patient

    def remove(self, waiter: Waiter) -> None:
        """Leave; a second time it changes nothing."""
        if self._ranks.remove(waiter):
            self.patient -= waiter.is_patient

    def displaced_by(self, priority: int) -> Waiter | None:
        """Return the waiter whose place in a full line goes to a caller of this priority; None: it gets none."""
        if self._ranks.below(priority) <= kept_for_lower(self.queue.length):
            return None
        lower = (waiter for waiter in self._ranks.from_last() if waiter.priority < priority)
        return next((waiter for waiter in lower if waiter.is_patient), None)

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
        if self._ranks.has_one_priority:
            return self._ranks.head()
        is_oldests = self._turn.is_now
        self._turn.pass_on()
        return self.first if is_oldests else self._ranks.head()
