"""A concurrency limit's gate: who may enter, who waits, and who is next when somebody leaves."""

from collections.abc import Sequence
from typing import Literal

from batchlimit.core.partition import Partition, Partitions
from batchlimit.core.queue import NO_QUEUE, Queue, Waiter, Waiting

Reason = Literal["limit", "partition", "queue_full", "queue_timeout", "shed", "unknown_partition"]
"""Why somebody was refused; see ConcurrencyLimited."""


class Gate:
    """Counts who is under way. No method blocks, reads a clock or wakes anybody: who was served is returned.

    After each method nobody waits who may enter, but for what time alone has changed since: `serve` sees to that. So
    who comes may enter at once if there is room; whoever waits then waits for something else.
    """

    __slots__ = ("_closed", "_queue", "in_flight", "limit", "open_to", "places", "rest", "strict", "waiting")

    def __init__(self, limit: int, partitions: Partitions | None = None, queue: Queue = NO_QUEUE) -> None:
        self.limit = limit
        self.open_to = 0
        """Below so many under way anybody may enter, of whatever partition; 0 where shares are strict."""
        self._closed = False
        self.in_flight = 0
        self._queue = queue
        self.waiting = Waiting(queue.order)
        self.strict = partitions is not None and partitions.strict
        shares = partitions.shares if partitions else {}
        self.places = {name: Partition(name, share, strict=self.strict) for name, share in shares.items()}
        self.rest = Partition("")
        self._share_out()

    def __repr__(self) -> str:
        return f"<Gate: {self.in_flight} of {self.limit} under way, {self.waiting.count} waiting>"

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Every partition with a share, and last the one of all others."""
        return (*self.places.values(), self.rest)

    def partition(self, name: str) -> Partition:
        """Return the partition of this name; that of all others if it has no share."""
        return self.places.get(name, self.rest)

    def enter(self, partition: Partition, now_ns: int) -> bool:
        """Enter if that is allowed now."""
        partition.asked_ns = now_ns
        if not self._may_enter(partition, now_ns):
            return False
        self.in_flight += 1
        partition.busy += 1
        return True

    def line_up(self, partition: Partition, waiter: Waiter) -> Reason | None:
        """Wait, having been refused entry; or return why not even that is possible."""
        if self.waiting.count >= self._queue.length:
            return "queue_full" if self._queue.length else self.reason
        waiter.gate, waiter.partition = self, partition
        self.waiting.add(waiter)
        return None

    @property
    def reason(self) -> Reason:
        """Why nobody may enter who does not wait."""
        return "partition" if self.in_flight < self.limit else "limit"

    def wait_ns(self, mean_ns: float, reason: Reason, now_ns: int) -> float | None:
        """Return an estimate of when to come back, if calls take so long on average; None: nothing is known.

        A place is free every mean / limit; ahead are all who wait, and who is under way above the limit. What is kept
        for others is lent when nobody has claimed it for a while.
        """
        ahead = self.waiting.count + max(0, self.in_flight - self.limit) + 1
        wait = mean_ns * ahead / self.limit if mean_ns else None
        if reason == "partition":
            lent = min((each.lent_in(now_ns) for each in self.places.values() if each.kept(now_ns)), default=0)
            return max(lent, wait or 0)
        return wait

    def give_up(self, waiter: Waiter) -> bool:
        """Wait no longer; False if it is too late for that: the waiter was served, and is under way."""
        if waiter.waiting:
            self.waiting.remove(waiter)
        return not waiter.served

    def take_back(self, waiter: Waiter, now_ns: int) -> Sequence[Waiter]:
        """Let one who was served be under way no longer, for nobody could tell it; return who was served instead."""
        waiter.served = False
        return self.leave(waiter.partition, now_ns)

    def leave(self, partition: Partition, now_ns: int) -> Sequence[Waiter]:
        """Be under way no longer; return who was served."""
        self.in_flight -= 1
        partition.busy -= 1
        return self.serve(now_ns) if self.waiting.count else ()

    def resize(self, limit: int, now_ns: int) -> list[Waiter]:
        """Set the limit; return who was served. Whoever is under way stays, also above a lower limit."""
        if limit == self.limit:
            return []
        self.limit = limit
        self._share_out()
        return self.serve(now_ns) if self.waiting.count else []

    def close(self) -> list[Waiter]:
        """Send away all who wait, and return them; from now on it is nobody's to enter without a closer look."""
        self._closed = True
        self._share_out()
        return self.waiting.clear()

    def serve(self, now_ns: int) -> list[Waiter]:
        """Let enter who may; return them. Time alone may be a reason: a strict share that nobody claims is lent."""
        served: list[Waiter] = []
        while waiter := next((each for each in self.waiting.heads() if self._may_enter(each.partition, now_ns)), None):
            self.in_flight += 1
            waiter.partition.busy += 1
            waiter.serve(now_ns, self.in_flight)
            self.waiting.remove(waiter)
            served.append(waiter)
        return served

    def _may_enter(self, partition: Partition, now_ns: int) -> bool:
        if not self.strict:
            return self.in_flight < self.limit or partition.busy < partition.guaranteed
        room = self.limit - self.in_flight
        if partition.busy < partition.guaranteed:
            return room > 0
        return room > sum(each.kept(now_ns) for each in self.places.values())

    def _share_out(self) -> None:
        self.open_to = 0 if self.strict or self._closed else self.limit
        for partition in self.places.values():
            partition.resize(self.limit)
