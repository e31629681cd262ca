"""The overdraft of a key: tokens that were used and never admitted. They are charged as tokens come."""

import math

from batchlimit.bucket.fair_share import bands_of, lease_for_trip, lease_of, pace_of
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import BucketView
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import NOBODY, Waiter

_PACES = 2.5
"""A debt is asked for so many paces late, at the most. The ask before the last came too early, and the last one pauses
again: a pace and a quarter each."""


class Overdraft:
    """Tokens that are owed. A waiter queues for them, always in the same place, and no caller waits with it.

    The waiter asks for a burst at most, since a bucket never has more; the rest follows. When its turn has come, it
    takes whatever is there.
    """

    __slots__ = ("paid", "waiter")

    def __init__(self) -> None:
        self.waiter = Waiter(0, math.inf, NOBODY)
        self.paid = 0

    @property
    def total(self) -> int:
        """What is owed, in tokens."""
        return self.waiter.cost + self.waiter.beyond

    def delay(self, cost: int, quota: Quota, view: BucketView) -> float:
        """Return for how many seconds, at the most, the refill may wait to pay the debt, and stop for it."""
        if not self.total:
            return 0.0
        bands = bands_of(quota)
        delay = _PACES * pace_of(bands, view.active_instances)
        if cost + self.total > quota.largest_cost:  # what paid counts as leased until the lease ends
            delay += lease_for_trip(lease_of(bands), round(view.round_trip * 1e6))
        return delay / 1e6

    def line_up(self, queue: WaitQueue, largest: int) -> None:
        """Queue for what is owed: last, if it was not there, and for `largest` tokens at the most."""
        total = self.total
        if total and self.waiter not in queue:
            self.waiter.cost = self.waiter.number = self.waiter.beyond = 0
            queue.join(self.waiter)
        cost = min(total, largest)
        queue.resize(self.waiter, cost, total - cost)
        if not total:
            queue.withdraw(self.waiter)

    def pay(self, tokens: int, queue: WaitQueue, largest: int) -> None:
        """Pay so many of those that it queues for."""
        self.paid += tokens
        queue.resize(self.waiter, self.waiter.cost - tokens, self.waiter.beyond)
        self.line_up(queue, largest)

    def forget(self) -> None:
        """Owe nothing any more: the reservoir is closed."""
        self.waiter.cost = self.waiter.beyond = 0


NO_OVERDRAFT = Overdraft()
"""What a key owes of which nobody ever used too much: one for all of them, since nothing can change in it."""
