"""The waiters of this process for a place at one key."""

from collections.abc import Callable, Iterator

from batchlimit.concurrency.queue import SHARE, Queue, Ranks
from batchlimit.shared.held_slots import Claim, Place


class SlotWaiter:
    """A caller that waits: it gets a place, or an error, or gives up; whichever comes first is final."""

    __slots__ = ("asks", "claim", "error", "is_patient", "number", "place", "priority", "wake")

    asks: int  # that were sent when it came, for only a later one concerns it
    number: int  # of its line

    def __init__(self, wake: Callable[[], object], is_patient: bool, priority: int, claim: Claim | None) -> None:
        self.wake = wake  # from any thread; RuntimeError if nobody can be woken any more
        self.is_patient = is_patient  # it waits for a release; else for the store's first answer alone
        self.priority, self.claim = priority, claim
        self.place: Place | None = None
        self.error: Exception | None = None


class Line:
    """All waiters: by priority, and of equal ones in the order in which they came."""

    __slots__ = ("_hasty", "_numbers", "_ranks", "_served", "leaving", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._ranks: Ranks[SlotWaiter] = Ranks(newest_first=queue.order == "lifo")
        self._served = self._numbers = 0
        self._hasty: set[SlotWaiter] = set()
        # About to get what ends their wait. If a signal handler raises meanwhile, the thread that asks finds them here.
        self.leaving: dict[SlotWaiter, None] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[SlotWaiter]:
        return iter(self._ranks)

    def __contains__(self, waiter: SlotWaiter) -> bool:
        return waiter in self._ranks

    @property
    def first(self) -> SlotWaiter:
        """The one who came first; not for an empty line."""
        return self._ranks.oldest()

    @property
    def patient(self) -> int:
        """How many are patient."""
        return len(self._ranks) - len(self._hasty)

    @property
    def is_full(self) -> bool:
        """Whether no patient waiter may join."""
        return self.patient >= self.queue.length

    def add(self, waiter: SlotWaiter) -> None:
        """Join."""
        self._numbers += 1
        waiter.number = self._numbers
        self._ranks.add(waiter)
        if not waiter.is_patient:
            self._hasty.add(waiter)

    def remove(self, waiter: SlotWaiter) -> None:
        """Leave; a second time it changes nothing."""
        self._hasty.discard(waiter)
        self._ranks.remove(waiter)

    def displaced_by(self, priority: int) -> SlotWaiter | None:
        """Return the waiter whose place in a full line goes to a caller of this priority; None: it gets none."""
        if self._ranks.below(priority) <= self.queue.length // SHARE:
            return None
        lower = (waiter for waiter in self._ranks.from_last() if waiter.priority < priority)
        return next((waiter for waiter in lower if waiter.is_patient), None)

    def refuse(self, waiters: list[SlotWaiter], error: Exception) -> list[SlotWaiter]:
        """Remove these, with an error; return them, to be woken."""
        for waiter in waiters:
            self.leaving[waiter] = None
            waiter.error = error
            self.remove(waiter)
        return waiters

    def next(self) -> SlotWaiter:
        """Return the one to serve next, which is leaving."""
        waiter = self._ranks.head()
        if len(self._ranks.priorities) > 1:
            if self._served % SHARE == SHARE - 1:
                waiter = self.first
            self._served += 1
        self.leaving[waiter] = None
        return waiter
