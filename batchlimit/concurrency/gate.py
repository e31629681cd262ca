"""A concurrency limit's gate: who may enter, who waits, and who is next when somebody leaves."""

from collections.abc import Sequence
from typing import Literal

from batchlimit.concurrency.partition import Partition, Partitions
from batchlimit.concurrency.queue import NO_QUEUE, Queue, Waiter, Waiting

Reason = Literal["limit", "partition", "queue_full", "queue_timeout", "shed", "unknown_partition"]
"""Why somebody was refused; see ConcurrencyLimited."""

_AT_ONCE = 16
"""So many are served in one go at the most: that takes about 50 us. Whoever is served goes on with it."""


class Gate:
    """Counts who is under way. No method blocks, reads a clock or wakes anybody: who was served is returned.

    After each method nobody waits who may enter, but for what time alone has changed since, and unless the gate is
    `behind`: `serve` sees to that. So who comes may enter at once if there is room; whoever waits then waits for
    something else. Where the gate is behind, who comes finds what there will be when all who may have entered.
    """

    __slots__ = (
        "_queue",
        "behind",
        "in_flight",
        "is_closed",
        "limit",
        "open_to",
        "places",
        "rest",
        "strict",
        "waiting",
    )

    def __init__(self, limit: int, partitions: Partitions | None = None, queue: Queue = NO_QUEUE) -> None:
        self.limit = limit
        self.open_to = 0
        """Below so many under way anybody may enter, of whatever partition; 0 where shares are strict."""
        self.is_closed = False
        self.behind = False
        """Whether some may wait for no more than the next `serve`: there were too many for one."""
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
        ahead, ours = (self.waiting.count, self.waiting.of(partition)) if self.behind else (0, 0)
        if not self._may_enter(partition, now_ns, ahead, ours):
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
        taken = self.in_flight + (self.waiting.count if self.behind else 0)
        return "partition" if taken < self.limit else "limit"

    def wait_ns(self, mean_ns: float, reason: Reason, now_ns: int) -> float | None:
        """Return an estimate of when to come back, if calls take so long on average; None: nothing is known.

        A place is free every mean / limit; ahead are all who wait, and who is under way above the limit. What is kept
        for others is lent when nobody has claimed it for a while.
        """
        ahead = self.waiting.count + max(0, self.in_flight - self.limit) + 1
        wait = mean_ns * ahead / self.limit if mean_ns else None
        if reason == "partition":
            return max(self.lent_in(now_ns, 0), wait or 0)
        return wait

    def lent_in(self, now_ns: int, otherwise: int) -> int:
        """Return in how many ns the first share is lent that is kept now; `otherwise` if none is."""
        return min((each.lent_in(now_ns) for each in self.places.values() if each.kept(now_ns)), default=otherwise)

    def give_up(self, waiter: Waiter) -> bool:
        """Wait no longer; False if it is too late for that: the waiter was served, and is under way."""
        self.waiting.remove(waiter)
        if self.behind and not self.waiting.count:
            self._mind(False)
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

    def resize(self, limit: int, now_ns: int) -> Sequence[Waiter]:
        """Set the limit; return who was served. Whoever is under way stays, also above a lower limit."""
        if limit == self.limit:
            return ()
        self.limit = limit
        self._share_out()
        return self.serve(now_ns) if self.waiting.count else ()

    def close(self) -> Sequence[Waiter]:
        """Serve nobody any more: from now on `serve` sends away who waits. It is nobody's to enter."""
        self.is_closed = True
        self._share_out()
        return self.serve(0)

    def serve(self, now_ns: int) -> list[Waiter]:
        """Let enter who may, some at least; return them. If those are not all, the gate is `behind`.

        Time alone may be a reason: a strict share that nobody claims is lent.
        """
        served: list[Waiter] = []
        while (waiter := self._next(now_ns)) and len(served) < _AT_ONCE:
            if waiter.waiting and not self.is_closed:
                # No call stands between these: a signal handler that raises finds all of them done, or none.
                self.in_flight += 1
                waiter.partition.busy += 1
                waiter.waiting, waiter.served = False, True
                waiter.start_ns, waiter.in_flight = now_ns, self.in_flight
            self.waiting.remove(waiter)
            served.append(waiter)
        self._mind(waiter is not None)
        return served

    def _next(self, now_ns: int) -> Waiter | None:
        """Return who is to leave the line next: one who may enter, or who is gone, or anybody of a gate that closed."""
        for each in self.waiting.heads():
            if self.is_closed or not each.waiting or self._may_enter(each.partition, now_ns):
                return each
        return None

    def _may_enter(self, partition: Partition, now_ns: int, ahead: int = 0, ours: int = 0) -> bool:
        """Whether one may enter before whom so many are to enter, of the same partition so many."""
        has_share = partition.busy + ours < partition.guaranteed
        if not self.strict:
            return has_share or self.in_flight + ahead < self.limit
        room = self.limit - self.in_flight
        if has_share:
            return room > 0
        return room - ahead > sum(each.kept(now_ns) for each in self.places.values())

    def _share_out(self) -> None:
        for partition in self.places.values():
            partition.resize(self.limit)
        self._mind(self.behind)

    def _mind(self, behind: bool) -> None:
        self.behind = behind
        self.open_to = 0 if self.strict or self.is_closed or behind else self.limit
