"""The gate of a concurrency limit: which calls may enter, which wait, and which is next when a call leaves."""

import math
from typing import TYPE_CHECKING, Literal

from batchlimit.concurrency.partition import LENT_AFTER_NS, Partition, Partitions
from batchlimit.concurrency.queue import NO_QUEUE, GateWaiter, Queue, Waiting

if TYPE_CHECKING:
    from batchlimit.concurrency.statistics import Counts

Reason = Literal["limit", "partition", "queue_full", "queue_timeout", "shed", "unknown_partition"]
"""Why a call was refused; see ConcurrencyLimited."""

_AT_ONCE = 16
"""Waiters that one `serve` lets enter at most: that takes about 50 us. The next ones follow when these call `serve`."""


class Gate:
    """Counts the calls under way; pure.

    After each method all waiters wait for something else than room, so a new call may enter if there is some. But time
    alone may have changed that, or the gate is `behind`: it has more to serve, and a new call gets what these leave.
    It has 11 public methods, because its partitions are asked for by name, and when the first share is lent.
    """

    __slots__ = (
        "_is_open", "behind", "by_name", "in_flight", "is_closed", "is_strict", "limit", "lowered", "open_to",
        "partitions", "raised", "rest", "unwoken", "waiting",
    )  # fmt: skip

    def __init__(self, limit: int, partitions: Partitions | None = None, queue: Queue = NO_QUEUE) -> None:
        self.limit = limit
        self.open_to = 0  # below so many under way any call may enter; 0: only `enter` knows
        self.is_closed = False
        self.behind = False  # whether waiters may wait for no more than the next `serve`: there were too many for one
        self.in_flight = 0
        self.raised: dict[str, int] = {}  # how often, by why
        self.lowered: dict[str, int] = {}
        self.waiting: Waiting[GateWaiter] = Waiting(queue)
        self.unwoken: dict[GateWaiter, None] = {}  # served or sent away, until somebody wakes them without the lock
        self.is_strict = partitions is not None and partitions.strict
        shares, caps = (partitions.shares, partitions.caps) if partitions else ({}, {})
        self._is_open = not self.is_strict and not caps  # whether any call may enter while the limit is not reached
        self.by_name = {
            name: Partition(name, shares.get(name, 0.0), strict=self.is_strict, cap=caps.get(name))
            for name in dict.fromkeys((*shares, *caps))
            if name
        }
        self.rest = Partition("", cap=caps.get(""))  # that of all calls without a name that is here
        self.partitions = *self.by_name.values(), self.rest
        self._share_out()

    def __repr__(self) -> str:
        return f"<Gate: {self.in_flight} of {self.limit} under way, {self.waiting.count} waiting>"

    def partition(self, name: str) -> Partition:
        """Return the partition of this name; that of all other calls if it has no share."""
        return self.by_name.get(name, self.rest)

    def lent_in(self, now_ns: int, otherwise: int) -> int:
        """Return in how many ns the first share is lent that is kept now; `otherwise` if none is."""
        kept = [each.asked_ns for each in self.by_name.values() if each.kept(now_ns)]
        return min(kept) + LENT_AFTER_NS - now_ns if kept else otherwise

    def enter(self, partition: Partition, now_ns: int) -> bool:
        """Enter if that is allowed now; return whether it was."""
        partition.asked_ns = now_ns
        ahead, ours = (self.waiting.count, self.waiting.of(partition)) if self.behind else (0, 0)
        if not self._may_enter(partition, now_ns, ahead, ours):
            return False
        self.in_flight += 1
        partition.busy += 1
        return True

    def line_up(self, partition: Partition, waiter: GateWaiter) -> Reason | None:
        """Add a waiter that was refused entry, if need be in place of one that it comes before; or return why not."""
        self.waiting.recount()  # who was interrupted may have joined or left without a count
        if partition.most == 0:  # nobody under its name ever enters
            return "partition"
        if not (length := self.waiting.queue.length):
            return self.reason
        if self.waiting.count >= length:
            if (last := self.waiting.displaced_by(waiter.priority)) is None:
                return "queue_full"
            last.displaced = True
            self.unwoken[last] = None
            self.waiting.remove(last)
        waiter.gate, waiter.partition = self, partition
        self.waiting.add(waiter)
        return None

    @property
    def reason(self) -> Reason:
        """Why a new call may not enter."""
        taken = self.in_flight + (self.waiting.count if self.behind else 0)
        return "partition" if taken < self.limit else "limit"

    def turns(self, partition: Partition) -> float:
        """Return how many times as long as a call takes it may be until one more may enter; inf: none ever may."""
        turns = (self.waiting.count + max(0, self.in_flight - self.limit) + 1) / self.limit
        if not partition.is_full:
            return turns
        most, ahead = partition.most, self.waiting.of(partition) + partition.busy
        own = (ahead + 1) / most - 1 if most else math.inf  # only calls of its own make room under its cap
        return own if self.in_flight < self.limit else max(own, turns)

    def give_up(self, waiter: GateWaiter) -> bool:
        """Remove a waiter; return False if it was served before, and so is under way."""
        self.waiting.remove(waiter)
        if self.behind and not self.waiting.count:
            self._set_behind(False)
        return not waiter.served

    def reclaim(self, counts: "Counts") -> bool:
        """Count calls whose permit is no more as abandoned, no longer as under way; if there were any, `serve`."""
        found = False
        for partition in self.partitions:
            if (lost := partition.lost) > 0:
                self.in_flight -= lost
                partition.busy -= lost
                counts.abandoned += lost
                counts.ignored += lost
                found = True
        return found

    def leave(self, partition: Partition, now_ns: int) -> None:
        """Count a call of this partition as over."""
        self.in_flight -= 1
        partition.busy -= 1
        if self.waiting.count:
            self.serve(now_ns)

    def resize(self, limit: int, now_ns: int, why: str = "") -> None:
        """Set the limit. Calls under way stay, also above a lower limit."""
        if limit == self.limit:
            return
        changes = self.raised if limit > self.limit else self.lowered
        changes[why] = changes.get(why, 0) + 1
        self.limit = limit
        self._share_out()
        if self.waiting.count:
            self.serve(now_ns)

    def close(self) -> None:
        """Serve no waiter any more: from now on `serve` removes all of them. The caller lets no call enter any more."""
        self.is_closed, self.open_to = True, 0
        self.serve(0)

    def serve(self, now_ns: int) -> None:
        """Let waiters enter that may, at most 16: they are `unwoken` then. If these are not all, it is `behind`."""
        left = _AT_ONCE
        while (waiter := self._next(now_ns)) and left:
            self.waiting.pass_turn()
            if waiter.waiting and not self.is_closed:
                # No call stands between these: a signal handler that raises finds all of them done, or none.
                waiter.marker = waiter.partition.marker
                self.in_flight += 1
                waiter.partition.busy += 1
                waiter.waiting, waiter.served = False, True
                waiter.start_ns, waiter.in_flight = now_ns, self.in_flight
            self.unwoken[waiter] = None
            self.waiting.remove(waiter)
            left -= 1
        self._set_behind(waiter is not None)

    def _next(self, now_ns: int) -> GateWaiter | None:
        """Return the waiter to remove next: one that may enter, or no longer waits, or any if the gate is closed."""
        for each in self.waiting.heads():
            if self.is_closed or not each.waiting or self._may_enter(each.partition, now_ns):
                return each
        return None

    def _may_enter(self, partition: Partition, now_ns: int, ahead: int = 0, ours: int = 0) -> bool:
        """Whether a call may enter behind `ahead` waiters that are to enter first, `ours` of them of its partition."""
        if partition.most is not None and partition.busy + ours >= partition.most:
            return False
        has_share = partition.busy + ours < partition.guaranteed
        if not self.is_strict:
            return has_share or self.in_flight + ahead < self.limit
        room = self.limit - self.in_flight
        if has_share:
            return room > 0
        return room - ahead > sum(each.kept(now_ns) for each in self.by_name.values())

    def _share_out(self) -> None:
        for partition in self.partitions:
            partition.resize(self.limit)
        self._set_behind(self.behind)

    def _set_behind(self, behind: bool) -> None:
        self.behind = behind
        self.open_to = 0 if not self._is_open or self.is_closed or behind else self.limit
