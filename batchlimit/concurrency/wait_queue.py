"""The queue at a locked gate, as threads and tasks use it."""

from collections.abc import Sequence

from batchlimit.base.waking import HEARTBEAT
from batchlimit.concurrency.critical_section import CriticalSection
from batchlimit.concurrency.gate import Reason
from batchlimit.concurrency.permit import HELD, BasePermit
from batchlimit.concurrency.queue import GateWaiter
from batchlimit.concurrency.statistics import Counts
from batchlimit.errors import ConcurrencyLimited, LimiterClosed

CLOSED = "this concurrency limiter was closed"

_SECOND = 1_000_000_000
_SOONEST = 0.001
"""Seconds until the queue is served again, at least: timers and clocks do not agree to the last digit."""


class GateQueue:
    """Lets a caller that was refused entry wait for a place: `join`, wait to be woken, and `leave` in any case."""

    __slots__ = ("_counts", "_section")

    def __init__(self, section: CriticalSection, counts: Counts) -> None:
        self._section, self._counts = section, counts

    def join(self, waiter: GateWaiter, partition: str) -> None:
        """Begin to wait. From now on any thread may wake the waiter, once: when it is served or the limiter is closed.

        Args:
            waiter: Its `wake` raises RuntimeError if nobody can be woken any more.
            partition: The name of its partition.

        Raises:
            TypeError: The priority is no whole number.
            ConcurrencyLimited: The queue is full.
            LimiterClosed: The limiter was closed.
        """
        if isinstance(waiter.priority, bool) or not isinstance(waiter.priority, int):
            raise TypeError(f"the priority of what may wait must be a whole number, not {waiter.priority!r}")
        self._section.wake(self._section.do(lambda: self._join(waiter, partition)))

    def _join(self, waiter: GateWaiter, partition: str) -> Sequence[GateWaiter]:
        gate, clock = self._section.gate, self._section.clock
        if gate.is_closed:
            raise LimiterClosed(CLOSED)
        displaced = gate.make_room(waiter.priority)
        if reason := gate.line_up(gate.partitions.of(partition), waiter):
            raise self._counts.refusal(gate, reason, clock())
        now = waiter.since_ns = clock()
        return [*displaced, *gate.serve(now)]

    def leave(self, permit: BasePermit, waiter: GateWaiter) -> bool:
        """Wait no longer; return whether the permit is held now. A second time it changes nothing."""
        is_held = self._section.do(lambda: self._leave(permit, waiter))
        if self._section.gate.behind:
            self.serve()
        return is_held

    def _leave(self, permit: BasePermit, waiter: GateWaiter) -> bool:
        section = self._section
        if permit._state is HELD or waiter.gate is not section.gate:  # the gate of this process's parent
            return permit._state is HELD
        if waiter.since_ns is not None:
            self._counts.waited(section.clock() - waiter.since_ns)
            waiter.since_ns = None
        if is_held := not section.gate.give_up(waiter):
            permit._hold(section.gate, waiter)
        return is_held

    def in_vain(self, waiter: GateWaiter) -> ConcurrencyLimited | LimiterClosed:
        """Count the refusal of a caller that waited in vain; return the error to raise."""
        section = self._section
        if section.gate.is_closed:
            return LimiterClosed(CLOSED)
        reason: Reason = "queue_full" if waiter.displaced else "queue_timeout"
        return section.do(lambda: self._counts.refusal(section.gate, reason, section.clock()))

    def serve(self) -> None:
        """Let waiters enter that may enter by now."""
        section = self._section
        section.change(lambda: section.gate.serve(section.clock()))

    def look(self) -> None:
        """Serve, and do what nobody does who was interrupted: take back places, and wake who is not woken yet."""
        section = self._section
        section.change(self._left_behind)
        while section.gate.has_lost and not section.is_changing:  # of waiters that nobody else knew
            section.change(self._left_behind)

    def _left_behind(self) -> Sequence[GateWaiter]:
        self.reclaim()
        self._section.gate.serve(self._section.clock())
        return [*self._section.gate.leaving]

    def reclaim(self) -> int:
        """Take back the places of permits that are no more; return how many. Requires the lock.

        Waiters are served, and are to be woken by `look`.
        """
        gate, counts = self._section.gate, self._counts
        if lost := gate.reclaim():
            counts.abandoned += lost
            counts.ignored += lost
            gate.serve(self._section.clock())
        return lost

    def pause(self) -> float:
        """Return after how many seconds a waiter is to `look`: time alone frees places that strict shares kept."""
        partitions = self._section.gate.partitions
        if not partitions.is_strict:
            return HEARTBEAT
        return min(HEARTBEAT, max(_SOONEST, partitions.lent_in(self._section.clock(), _SECOND) / _SECOND))
