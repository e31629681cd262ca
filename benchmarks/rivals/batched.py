"""Batches without a lease: the design that this package began with, and most who batch stop at."""

from collections.abc import Generator

from batchlimit import Quota
from batchlimit.batching import BatchSizer
from batchlimit.reservoir.sizing import Usage
from benchmarks.rivals.request import Request, Take


class Batched:
    """Takes a batch when what is left does not suffice; a part of one will do. What it has it keeps until it is spent.

    Tokens do not expire, so what a quiet instance keeps comes on top of the burst. A denial is not remembered:
    while the bucket is empty every call asks again.
    """

    period = None
    single = True

    def __init__(self, sizer: BatchSizer, quota: Quota) -> None:
        self._sizer, self._quota = sizer, quota
        self._last = 0
        self.tokens = 0

    def __repr__(self) -> str:
        return f"<Batched {self._sizer}: {self.tokens} tokens>"

    def admit(self, cost: int, now: float) -> Generator[Request, int, bool]:
        if self.tokens < cost:
            self._last = yield Take(max(self._want(), cost - self.tokens), whole=False)
            self.tokens += self._last
        if self.tokens < cost:
            return False
        self.tokens -= cost
        return True

    def background(self, now: float) -> Generator[Request, int, None]:
        yield from ()

    def _want(self) -> int:
        """Nothing is ever wasted here, so a growing batch would grow without end but for what the bucket gives."""
        # No demand: the sizes of this design do not look at it.
        usage = Usage(self._quota, demand=0.0, last=self._last, left=0)
        return min(self._sizer.want(usage), self._quota.largest_cost)
