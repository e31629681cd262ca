"""What is to be looked at, and when: the soonest first, and of what is not to be any more nothing is kept for long."""

import heapq
import itertools
import math
from typing import Generic, Protocol, TypeVar

_FEWEST = 64
"""Plans are not tidied up below this number."""
_SKIPS = 512
"""How many stale plans are skipped at a time, which takes 0.5 ms."""
_MOVES = 8
"""How many plans are tidied up whenever one is added: the fewer, the more are added until all are tidied up."""


class DueEntry(Protocol):
    """Something to look at at the instant `due` (instance clock); inf: not at all."""

    due: float


D = TypeVar("D", bound=DueEntry)
Heap = list[tuple[float, int, D]]


class TimerHeap(Generic[D]):
    """Things by their `due`. A plan is stale if its thing was planned anew meanwhile: it is skipped, or tidied away.

    A thousand callers that are served, or keys that are dropped, leave a thousand stale plans. When there are twice as
    many plans as there were live ones, the live ones are moved to a new heap, a few at a time. To move a million at
    once would take 100 ms. Plans are moved from the end of the old heap, so what is left there is a heap still.
    """

    __slots__ = ("_heap", "_most", "_old", "_order")

    def __init__(self) -> None:
        self._heap: Heap[D] = []
        self._old: Heap[D] = []  # what is still to be moved
        self._order = itertools.count()  # breaks ties: things have no order
        self._most = _FEWEST

    def __len__(self) -> int:
        return len(self._heap) + len(self._old)

    @property
    def first_at(self) -> float:
        """The instant of the first plan, which may be stale; inf if there is none."""
        return min(heap[0][0] if heap else math.inf for heap in (self._heap, self._old))

    def add(self, thing: D) -> None:
        """Plan to look at this thing when it is due."""
        heapq.heappush(self._heap, (thing.due, next(self._order), thing))
        if self._old:
            self._tidy()
        elif len(self._heap) >= self._most:
            self._heap, self._old = self._old, self._heap

    def take(self, now: float) -> D | None:
        """Return the first thing that is due, and forget its plan; None: look again at `first_at`."""
        for _ in range(_SKIPS):
            if self.first_at > now or not self:
                break
            at, _, thing = heapq.heappop(min(filter(None, (self._heap, self._old))))
            if at == thing.due:
                return thing
        return None

    def clear(self) -> None:
        """Forget all of them."""
        self._heap.clear()
        self._old.clear()

    def _tidy(self) -> None:
        for _ in range(min(_MOVES, len(self._old))):
            plan = self._old.pop()
            if plan[0] == plan[2].due < math.inf:
                heapq.heappush(self._heap, plan)
        if not self._old:
            self._most = max(_FEWEST, 2 * len(self._heap))
