"""Virtual time: what happens when. A run is as deterministic as its happenings, and as fast as they are computed."""

import heapq
import itertools
import math
from collections.abc import Callable

SECOND = 1_000_000
"""The world counts whole microseconds, as the bucket does."""
Happening = Callable[[], object]


class Agenda:
    """Happenings by their instants; those of one instant come in the order in which they were planned."""

    __slots__ = ("_heap", "_order", "now")

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Happening]] = []
        self._order = itertools.count()

    def at(self, instant: int, happening: Happening) -> None:
        """Let it happen at this instant; what is planned for the past happens now."""
        heapq.heappush(self._heap, (max(instant, self.now), next(self._order), happening))

    def after(self, seconds: float, happening: Happening) -> None:
        """Let it happen in so many seconds; never earlier by the rounding of an instance's clock or a bucket's."""
        self.at(self.now + 2 + math.ceil(seconds * SECOND), happening)

    def next_before(self, until: int) -> bool:
        """Let the next happening happen, if it is due before `until`; False: there is none, and it is `until` now."""
        if not self._heap or self._heap[0][0] > until:
            self.now = max(self.now, until)
            return False
        self.now, _, happening = heapq.heappop(self._heap)
        happening()
        return True

    def run(self, until: int) -> None:
        """Let everything happen that is due before `until`."""
        while self.next_before(until):
            pass
