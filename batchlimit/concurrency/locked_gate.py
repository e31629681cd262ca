"""The gate and its law behind one lock: threads and tasks enter and leave through it."""

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from batchlimit.base.forks import Forkables
from batchlimit.base.setting import function, functions, several
from batchlimit.concurrency.classification import Classify, outcome_of
from batchlimit.concurrency.critical_section import CLOSED, CriticalSection, LimitControl, SheddablePermits, checked
from batchlimit.concurrency.gate import Gate, Reason
from batchlimit.concurrency.law import Calibrated, Law, Outcome, Sample, baselines_of, state_of
from batchlimit.concurrency.laws.knee.knee import Knee
from batchlimit.concurrency.laws.simple import Gitaly, Watched
from batchlimit.concurrency.partition import Partition, Partitions
from batchlimit.concurrency.permit import BYPASS, DROPPED, HELD, IGNORED, LEFT, OVER, SUCCESS, BasePermit
from batchlimit.concurrency.queue import GateWaiter, Queue
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

Bypass = Callable[[str, str], bool]
"""Returns True for a call, by its operation and its partition, that the limit is not for."""

_new: Callable[[type[Sample], tuple[int, int, int, bool, str]], Sample] = tuple.__new__


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


class LockedGate:
    """One gate for threads and for tasks of any event loop. No method blocks, but for microseconds on the lock.

    `enter` and `leave` are the cost of every call, so both are written flat: their usual cases are Gate.enter and
    Gate.leave. A signal handler may raise wherever a function is called, so both change what belongs together with no
    call in between. The marker of a partition finds calls whose end was interrupted for all that: see `lost` there.
    """

    def __init__(
        self, law: Law, partitions: Partitions | None, queue: Queue, options: GateOptions, key: str | None = None
    ) -> None:
        self.clock = options.clock
        self.time: Any = None  # makes the wakeups of threads and tasks; None: in real time
        self._classify, self._bypass = options.classify, options.bypass
        self._partitions, self._queue = partitions, queue
        self.counts = Counts(key)
        self.section = CriticalSection(Gate(checked(law.limit), partitions, queue), self.counts, options.clock)
        self.sheddable = SheddablePermits(self.section)
        self._shedder = None if options.shedding is None else Shedder(options.shedding)
        self._is_watched = options.is_watched
        self.control = LimitControl(self.section, law)  # for changes that no call brings
        self._update = self.control.law.update
        self._observers = [each.observe for each in options.watchers if isinstance(each, LatencyWatcher)]
        live_gates.add(self)

    def __repr__(self) -> str:
        return f"<LockedGate of {self.control.law!r}: {self.section.gate!r}>"

    def enter(self, permit: BasePermit, partition: str, wait: float) -> float:
        """Enter and return 0, or return for how long the call may wait (s, at most `wait`), or raise the refusal."""
        if self._bypass is not None and self._bypass(permit.operation, partition):
            with self.section.lock:
                self.counts.bypassed += 1
            permit._state = BYPASS
            return 0.0
        now = self.clock()
        section = self.section
        seconds, refusal = 0.0, None
        with section.lock:
            gate = section.gate
            place = gate.partitions.by_name.get(partition) if partition else gate.partitions.rest
            if place is None:
                place = self._place_of_unknown(permit, partition)
            if gate.in_flight < gate.open_to:
                permit._marker = place.marker  # first: never are fewer referring to it than are counted
                gate.in_flight += 1
                place.busy += 1
                reason = None
            else:
                reason = self._enter_slowly(permit, place, now)
            if reason is None:
                permit._gate, permit._place = gate, place
                permit.start_ns, permit._in_flight = now, gate.in_flight
                permit._state = HELD
            else:
                permit._state = OVER  # of one that may wait, too: nobody is to complete it
                if not (seconds := self._queue.patience(wait)):
                    refusal = self.counts.refusal(gate, reason, now)
        if section.deferred and not section.is_changing:
            section.run_deferred()
        if refusal is None:
            return seconds
        try:
            raise refusal  # not under the lock: an exception that leaves the block takes 350 ns more
        finally:
            del refusal  # which would refer to itself, by this frame

    def tell_time(self, clock: Callable[[], int], wakeups: Any) -> None:
        """Go by another clock from now on, which is not behind, and have callers wait in this time."""
        self.clock = self.section.clock = clock
        self.time = wakeups

    def _place_of_unknown(self, permit: BasePermit, partition: str) -> Partition:
        """Return the partition of a call whose name has no share, or refuse it. Requires the lock."""
        gate = self.section.gate
        if self._partitions is None or gate.is_closed:
            return gate.partitions.rest
        self.counts.unknown += 1
        if self._partitions.unknown == "spare":
            return gate.partitions.rest
        permit._state = OVER
        self.counts.refused["unknown_partition"] += 1
        detail = f"no partition is named {partition!r}; unknown='spare' of Partitions would let it have what is spare"
        raise ConcurrencyLimited("unknown_partition", None, gate.limit, gate.in_flight, detail, self.counts.key)

    def _enter_slowly(self, permit: BasePermit, place: Partition, now: int) -> Reason | None:
        """Enter as Gate.enter says, or return why not; no permit is completed meanwhile. Requires the lock."""
        section = self.section
        gate, nested = section.gate, section.is_changing
        if gate.is_closed:
            permit._state = OVER
            raise LimiterClosed(CLOSED)
        section.is_changing = True
        try:
            permit._marker = place.marker
            if gate.enter(place, now):
                return None
            permit._marker = None
            if nested:
                return gate.reason
            lost = gate.has_lost and self.section.reclaim()
            if gate.unwoken:
                section.deferred.append(self.section.catch_up)
            return self._enter_slowly(permit, place, now) if lost else gate.reason
        finally:
            section.is_changing = nested

    def refusal(self, reason: Reason) -> ConcurrencyLimited:
        """Count a refusal; return the error to raise."""
        with self.section.lock:
            return self.counts.refusal(self.section.gate, reason, self.clock())

    def leave(self, permit: BasePermit, outcome: Outcome) -> None:
        """Complete a permit; nothing changes if it is complete already, or of the process this one was forked from."""
        now = self.clock()
        section = self.section
        served: Sequence[GateWaiter] = ()
        try:
            with section.lock:
                gate = section.gate
                if permit._state is HELD and permit._gate is gate:
                    gate.in_flight -= 1
                    permit._place.busy -= 1
                    permit._marker = None
                    permit._state = LEFT
                if section.is_changing:
                    section.deferred.append(partial(self.leave, permit, outcome))
                    return
                if permit._state is not LEFT:
                    permit._end()
                    return
                permit._state = OVER
                section.is_changing = True
                try:
                    if permit._sheddable:
                        self.sheddable.permits.discard(permit)
                    counts = self.counts
                    if outcome is IGNORED:
                        counts.ignored += 1
                    else:
                        rtt = now - permit.start_ns
                        if outcome is SUCCESS:
                            counts.succeeded += 1
                            counts.last_rtt_ns = rtt
                        else:
                            counts.dropped += 1
                        # As Sample(...), which takes 150 ns more.
                        told = permit.start_ns, rtt, permit._in_flight, outcome is DROPPED, permit.operation
                        try:
                            for observe in self._observers:
                                observe(rtt)
                            if (limit := self._update(_new(Sample, told))) != gate.limit:
                                served = self.control.take_over(limit, now, dropped=outcome is DROPPED)
                        except Exception as error:  # noqa: BLE001  the caller has done its work, and cannot help it
                            section.deferred.append(partial(self.control.report, error))
                    if gate.waiting.count:
                        served = [*served, *gate.serve(now)]
                finally:
                    section.is_changing = False
        finally:
            if served:
                section.wake(served)
        if section.deferred:
            section.run_deferred()

    def leave_by(self, permit: BasePermit, error: BaseException | None) -> None:
        """Complete a permit whose block ended, with this error if any."""
        self.leave(permit, SUCCESS if error is None else outcome_of(error, self._classify))

    def abandon(self, permit: BasePermit) -> None:
        """Complete a held permit that the garbage collector found."""
        if permit._gate is self.section.gate:
            with self.section.lock:
                self.counts.abandoned += 1
            self.leave(permit, IGNORED)

    def end_period(self, events: Sequence[str], own: Sequence[str] | None = None) -> None:
        """Tell the law what watchers saw; end calls if overload lasts, by what its own watchers saw (None: all are)."""
        try:
            if self._is_watched:
                self.control.calibrate(events)
        finally:  # a law that fails is no reason to keep what the memory is full of
            if self._shedder is not None:
                self._shedder.end_period(events if own is None else own, self.sheddable)

    def close(self) -> None:
        """Let no call enter any more, and wake every waiter. Calls under way go on, and leave as ever."""
        section = self.section
        with section.lock:
            section.gate.is_closed, section.gate.open_to = True, 0  # at once, also during another change
        section.change(section.gate.close)

    def statistics(self, watchers: tuple[WatcherStatistics, ...]) -> ConcurrencyStatistics:
        """Return what was counted, with these statistics of watchers."""
        self.section.catch_up()
        with self.section.lock:
            gate, counts, law = self.section.gate, self.counts, state_of(self.control.law)
            return ConcurrencyStatistics(
                limit=gate.limit,
                in_flight=gate.in_flight,
                waiting=gate.waiting.count,
                **{each: getattr(counts, each) for each in ENDED},
                refused=dict(counts.refused),
                watchers=watchers,
                waits=counts.waits,
                baselines=baselines_of(self.control.law),
                last_rtt=counts.last_rtt_ns / 1e9,
                raised_by=dict(gate.raised),
                lowered_by=dict(gate.lowered),
                ratio=law.ratio,
                settled_limit=gate.limit if law.settled is None else law.settled,
                partitions={p.name: PartitionStatistics(p.busy, p.guaranteed, p.most) for p in gate.partitions.all},
            )

    def after_fork(self) -> None:
        """Begin anew in a forked child: no call is under way there, and none waits."""
        section, parents = self.section, self.section.gate
        section.gate = Gate(parents.limit, self._partitions, self._queue)
        if parents.is_closed:
            section.gate.close()
        section.lock, section.is_changing = threading.RLock(), False  # threads of the parent may have held the lock
        section.deferred.clear()
        self.sheddable.permits = weakref.WeakSet()


live_gates: Forkables[LockedGate] = Forkables()
"""Every gate of this process."""
