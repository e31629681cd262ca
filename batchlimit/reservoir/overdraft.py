"""The overdraft of a key: tokens that were used and never admitted. They are charged as tokens come."""

import math

from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import NOBODY, Waiter


class Overdraft:
    """Tokens that are owed. A waiter queues for them, always in the same place, and no caller waits with it.

    The waiter asks for a burst at most, since a bucket never has more; the rest follows. When its turn has come, it
    takes whatever is there.
    """

    __slots__ = ("paid", "waiter")

    def __init__(self) -> None:
        self.waiter = Waiter(0, math.inf, NOBODY)
        self.paid = 0

    def __repr__(self) -> str:
        return f"<Overdraft of {self.total}, {self.paid} paid>"

    @property
    def total(self) -> int:
        """What is owed, in tokens."""
        return self.waiter.cost + self.waiter.beyond

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
