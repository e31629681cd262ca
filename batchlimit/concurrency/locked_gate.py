"""The gate and its law behind one lock: threads and tasks enter and leave through it."""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from batchlimit.base.forks import Forkables
from batchlimit.base.setting import function, functions, several
from batchlimit.concurrency.classification import Classify
from batchlimit.concurrency.critical_section import CLOSED, CriticalSection
from batchlimit.concurrency.gate import Gate, Reason
from batchlimit.concurrency.law import Calibrated, Law, baselines_of, state_of
from batchlimit.concurrency.laws.knee.knee import Knee
from batchlimit.concurrency.laws.simple import Gitaly, Settable, Watched
from batchlimit.concurrency.partition import Partition, Partitions
from batchlimit.concurrency.permit import HELD, OVER, BasePermit
from batchlimit.concurrency.queue import Queue
from batchlimit.concurrency.shedding import Shedder, Shedding, check_shedding
from batchlimit.concurrency.statistics import (
    ENDED,
    ConcurrencyStatistics,
    Counts,
    PartitionStatistics,
    WatcherStatistics,
)
from batchlimit.concurrency.watchers.latency import LatencyWatcher
from batchlimit.concurrency.watchers.watcher import Watcher
from batchlimit.errors import ConcurrencyLimited, LimiterClosed
from batchlimit.events import log_event

Bypass = Callable[[str, str], bool]
"""Returns True for a call, by its operation and its partition, that the limit is not for."""

Changed = Callable[..., object]
"""Called when the limit has changed, with the limit before and after; and why, where that is asked for."""


class GateOptions(NamedTuple):
    """What a limiter has for its gates."""

    classify: Classify
    bypass: Bypass | None
    watchers: tuple[Watcher, ...]
    shedding: Shedding | None
    clock: Callable[[], int]  # returns ns; never runs backwards
    is_watched: bool  # also by watchers that a gate has alone

    @classmethod
    def checked(cls, classify: Any, bypass: Any, watchers: Any, shedding: Any, clock: Any) -> "GateOptions":
        """Return what the caller of a limiter has chosen; TypeError, ValueError for what cannot work."""
        functions(bypass=bypass)
        watchers = several("watchers", watchers, "watchers")
        check_shedding(shedding, watchers)
        classify, clock = function("classify", classify), function("clock", clock)
        return cls(classify, bypass, watchers, shedding, clock, bool(watchers))


def prepared(law: Law, options: GateOptions) -> Law:
    """Return a law that learns what watchers saw, and drains by the time of day; ValueError, TypeError for no such."""
    for each in (getattr(law, "law", law), law):  # what it wraps first
        if isinstance(each, type) or not isinstance(each, Law):
            raise TypeError(f"law must be a law, like Fixed(20), not {each!r}")
    if isinstance(law, Gitaly) and not options.is_watched:
        raise ValueError(f"{law!r} needs watchers=, such as [MemoryWatcher()]: without any it stays where it is")
    if isinstance(law, Knee) and options.clock is time.monotonic_ns:
        law._share_time(time.time_ns() - time.monotonic_ns())
    return Watched(law) if options.is_watched and not isinstance(law, Calibrated) else law


def checked(limit: int) -> int:
    """Return a limit that a law gave, raised to 1 if it is lower; TypeError if it is no whole number."""
    if limit.__class__ is not int:
        raise TypeError(f"a law must give a whole number of calls, not {limit!r}")
    return limit if limit > 0 else 1


class LockedGate(CriticalSection):
    """One gate and its law, for threads and for tasks of any event loop. No method blocks, but for microseconds.

    Permits enter and leave it, and write what it counts. It has 13 public methods, because they, the laws, the rounds
    and the limiter use it.
    """

    def __init__(
        self, law: Law, partitions: Partitions | None, queue: Queue, options: GateOptions, key: str | None = None
    ) -> None:
        super().__init__(Gate(checked(law.limit), partitions, queue), Counts(key), options.clock)
        self.time: Any = None  # makes the wakeups of threads and tasks; None: in real time
        self.classify, self.bypass = options.classify, options.bypass
        self._partitions, self.queue = partitions, queue
        self._shedder = None if options.shedding is None else Shedder(options.shedding)
        self._is_watched = options.is_watched
        self.law, self.update, self._has_failed = law, law.update, False
        self._listeners: tuple[tuple[Changed, bool], ...] = ()
        self.sheddable: weakref.WeakSet[BasePermit] = weakref.WeakSet()  # of those under way; touched under the lock
        self.observers = [each.observe for each in options.watchers if isinstance(each, LatencyWatcher)]
        live_gates.add(self)
        if isinstance(setting := law.law if isinstance(law, Watched) else law, Settable):
            alive = weakref.ref(self)

            def was_set() -> None:
                if (gate := alive()) is not None:
                    gate.resize(lambda _now: law.limit, "operator")

            setting.listen(was_set)

    def __repr__(self) -> str:
        return f"<LockedGate of {self.law!r}: {self.gate!r}>"

    def tell_time(self, clock: Callable[[], int], wakeups: Any) -> None:
        """Go by another clock from now on, which is not behind, and have callers wait in this time."""
        self.clock, self.time = clock, wakeups

    def partition_of_unknown(self, permit: BasePermit, partition: str) -> Partition:
        """Return the partition of a call whose name has no share, or refuse it. Requires the lock."""
        gate = self.gate
        if self._partitions is None or gate.is_closed:
            return gate.rest
        self.counts.unknown += 1
        if self._partitions.unknown == "spare":
            return gate.rest
        permit._state = OVER
        self.counts.refused["unknown_partition"] += 1
        detail = f"no partition is named {partition!r}; unknown='spare' of Partitions would let it have what is spare"
        raise ConcurrencyLimited("unknown_partition", None, gate.limit, gate.in_flight, detail, self.counts.key)

    def enter_slowly(self, permit: BasePermit, place: Partition, now: int) -> Reason | None:
        """Enter as Gate.enter says, or return why not; no permit is completed meanwhile. Requires the lock."""
        gate, nested = self.gate, self.is_changing
        if gate.is_closed:
            permit._state = OVER
            raise LimiterClosed(CLOSED)
        self.is_changing = True
        try:
            permit._marker = place.marker
            if gate.enter(place, now):
                return None
            permit._marker = None
            if nested:
                return gate.reason
            if lost := gate.reclaim(self.counts):
                gate.serve(now)
            if gate.unwoken:
                self.deferred.append(self.wake)
            return self.enter_slowly(permit, place, now) if lost else gate.reason
        finally:
            self.is_changing = nested

    def refusal(self, partition: Partition, reason: Reason) -> ConcurrencyLimited:
        """Count a refusal; return the error to raise."""
        with self.lock:
            return self.counts.refusal(self.gate, partition, reason, self.clock())

    # Its limit

    def listen(self, changed: Changed, why: bool) -> None:
        """Call a function after each change of the limit, without the lock; with the reason, if it asks why."""
        with self.lock:
            self._listeners += ((changed, why),)

    def take_over(self, limit: int, now: int, why: str = "", *, dropped: bool = False) -> None:
        """Set a limit that the law gave. Requires the lock."""
        gate, limit = self.gate, checked(limit)
        if (before := gate.limit) == limit:
            return
        by_call = "room" if limit > before else "loss" if dropped else "late"  # what the call says, if the law does not
        why = why or state_of(self.law).why or by_call
        gate.resize(limit, now, why)
        if listeners := self._listeners:
            self.deferred.append(lambda: _tell(listeners, before, limit, why))

    def resize(self, limit: Callable[[int], int], why: str) -> None:
        """Take over the limit that the law gives at a time (ns)."""
        self.change(lambda: self.take_over(limit(now := self.clock()), now, why))

    def report(self, error: Exception) -> None:
        """Log that the law failed: the first time as an error, then for debugging, since it may fail at each call."""
        level, self._has_failed = logging.DEBUG if self._has_failed else logging.ERROR, True
        log_event("law.failed", "%r failed; the limit stays", self.law, error=error, level=level, law=repr(self.law))

    # What may be told to give up

    def excess(self) -> tuple[int, list[BasePermit]]:
        """Return how many calls are above the limit, and the sheddable ones; in both without those that were told."""

        def look() -> tuple[int, list[BasePermit]]:
            held = [each for each in self.sheddable if each._state is HELD]
            left = [each for each in held if not each._is_shed]
            return self.gate.in_flight - self.gate.limit - len(held) + len(left), left

        return self.do(look)

    def end_period(self, events: Sequence[str], own: Sequence[str] | None = None) -> None:
        """Tell the law what watchers saw; end calls if overload lasts, by what its own watchers saw (None: all are)."""
        try:
            if self._is_watched:
                law = self.law
                assert isinstance(law, Calibrated)
                self.resize(lambda now: law.calibrate(events, now), "watchers")
        finally:  # a law that fails is no reason to keep what the memory is full of
            if self._shedder is not None:
                self._shedder.end_period(events if own is None else own, self)

    def close(self) -> None:
        """Let no call enter any more, and wake every waiter. Calls under way go on, and leave as ever."""
        with self.lock:
            self.gate.is_closed, self.gate.open_to = True, 0  # at once, also during another change
        self.change(self.gate.close)

    def statistics(self, watchers: tuple[WatcherStatistics, ...]) -> ConcurrencyStatistics:
        self.catch_up()
        with self.lock:
            gate, counts, law = self.gate, self.counts, state_of(self.law)
            return ConcurrencyStatistics(
                limit=gate.limit,
                in_flight=gate.in_flight,
                waiting=gate.waiting.count,
                **{each: getattr(counts, each) for each in ENDED},
                refused=dict(counts.refused),
                watchers=watchers,
                waits=counts.waits,
                baselines=baselines_of(self.law),
                last_rtt=counts.last_rtt_ns / 1e9,
                raised_by=dict(gate.raised),
                lowered_by=dict(gate.lowered),
                ratio=law.ratio,
                settled_limit=gate.limit if law.settled is None else law.settled,
                partitions={p.name: PartitionStatistics(p.busy, p.guaranteed, p.most) for p in gate.partitions},
            )

    def after_fork(self) -> None:
        """Begin anew in a forked child: no call is under way there, and none waits."""
        parents, self.gate = self.gate, Gate(self.gate.limit, self._partitions, self.queue)
        if parents.is_closed:
            self.gate.close()
        self.lock, self.is_changing = threading.RLock(), False  # threads of the parent may have held the lock
        self.deferred.clear()
        self.sheddable = weakref.WeakSet()


def _tell(listeners: Sequence[tuple[Changed, bool]], before: int, after: int, why: str) -> None:
    for changed, asks_why in listeners:
        try:
            changed(before, after, *([why] if asks_why else ()))
        except Exception as error:  # noqa: BLE001  the caller has done its work, and cannot help it
            log_event("limit.listener_failed", "%r failed at a change of the limit", changed, error=error)


live_gates: Forkables[LockedGate] = Forkables()
"""Every gate of this process."""
