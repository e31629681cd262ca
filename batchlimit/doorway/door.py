"""Door: the gate and its law behind one lock; threads and tasks enter and leave through it."""

import logging
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from batchlimit.core.gate import Gate, Reason
from batchlimit.core.law import Calibrated, Law
from batchlimit.core.partition import Partition, Partitions
from batchlimit.core.queue import Queue, Waiter
from batchlimit.core.sample import Outcome, Sample
from batchlimit.core.tally import ConcurrencyStatistics, PartitionStatistics, WatcherStatistics
from batchlimit.doorway.classify import Classify
from batchlimit.doorway.passes import BYPASS, HELD, OVER, Pass
from batchlimit.errors import ConcurrencyLimited, LimiterClosed
from batchlimit.laws.fixed import Settable
from batchlimit.laws.watched import Watched
from batchlimit.watchers.base import Watcher
from batchlimit.watchers.latency import LatencyWatcher

_logger = logging.getLogger("batchlimit")

Bypass = Callable[[str, str], bool]
"""Says of a call, by its operation and its partition, that no limit is for it."""

_SECOND = 1_000_000_000
_RECENT = 16
"""How many of the last calls the mean rtt is about, for saying when to come back."""

_CLOSED = "this concurrency limiter was closed"

_new: Callable[[type[Sample], tuple[int, int, int, bool, str]], Sample] = tuple.__new__

# Looked up once: an attribute of an Enum class takes 30 ns.
SUCCESS, DROPPED, IGNORED = Outcome


class Door:
    """One gate for threads and for tasks of any event loop. No method blocks, but for microseconds on the lock.

    `enter` and `leave` are what a call costs, and are written flat. `with` costs 45 ns more than to hold the lock by
    hand, but nothing interrupts it halfway: a Ctrl-C after acquire() and before `try` would lock the door for ever.
    """

    def __init__(
        self,
        law: Law,
        *,
        partitions: Partitions | None,
        queue: Queue,
        classify: Classify,
        bypass: Bypass | None,
        watchers: Sequence[Watcher],
        clock: Callable[[], int],
    ) -> None:
        self.law = Watched(law) if watchers and not isinstance(law, Calibrated) else law
        self._update = self.law.update
        self._observers = [each.observe for each in watchers if isinstance(each, LatencyWatcher)]
        self.queue, self.classify, self.clock = queue, classify, clock
        self._partitions, self._bypass = partitions, bypass
        # Held to touch the gate, the law and what is counted; never while somebody is woken.
        self._lock = threading.Lock()
        self._gate = Gate(law.limit, partitions, queue)
        self._closed = False
        self._succeeded = self._dropped = self._ignored = self._bypassed = self._lost = 0
        self._refused: Counter[str] = Counter()
        self._mean_ns = 0.0
        self._abandoned: deque[tuple[Gate | None, Partition]] = deque()
        self._exposed: weakref.WeakSet[Pass] = weakref.WeakSet()
        self._shed = 0
        if isinstance(law, Settable):
            law.listen(self.refresh)
        _doors.add(self)

    def __repr__(self) -> str:
        return f"<Door of {self.law!r}: {self._gate!r}>"

    @property
    def limit(self) -> int:
        return self._gate.limit

    @property
    def patience(self) -> float:
        """After how many seconds who waits should `look` again: time alone frees what strict shares keep."""
        return 1.0 if self._gate.strict else float("inf")

    # To enter

    def enter(self, permit: Pass, partition: str) -> bool:
        """Enter if there is room; LimiterClosed."""
        if self._closed:
            raise LimiterClosed(_CLOSED)
        if self._bypass is not None and self._bypass(permit.operation, partition):
            return self._pass_by(permit)
        with self._lock:
            gate, now = self._gate, self.clock()
            place = gate.places.get(partition, gate.rest)
            if entered := gate.enter(place, now):
                permit.gate, permit.place, permit.start_ns, permit.in_flight = gate, place, now, gate.in_flight
                permit.state = HELD
        if self._abandoned:
            self._collect()
        return entered

    def line_up(self, partition: str, wake: Callable[[], object]) -> Waiter:
        """Wait, having been refused entry; ConcurrencyLimited: there is no queue, or it is full.

        Who is served is woken, and so is who waits when the limiter is closed: once, by any thread, without the lock.
        `wake` raises RuntimeError where nobody can be woken any more.
        """
        with self._held():
            if self._closed:
                raise LimiterClosed(_CLOSED)
            found = self._gate.line_up(self._gate.partition(partition), wake)
            if isinstance(found, Waiter):
                served = self._gate.serve(self.clock())
            else:
                raise self._refusal(found)
        self._wake(served)
        return found

    def look(self) -> None:
        """Let enter whom time alone lets."""
        with self._held():
            served = self._gate.serve(self.clock())
        self._wake(served)

    def end_wait(self, permit: Pass, waiter: Waiter) -> bool:
        """Wait no longer; return whether the permit is held now."""
        with self._held():
            gate = self._gate
            held = not gate.give_up(waiter)
        if held:
            permit.hold(gate, waiter)
        return held

    def refusal(self, reason: Reason | None = None) -> ConcurrencyLimited | LimiterClosed:
        """Count a refusal, and return it to be raised; without a reason, of one who does not wait."""
        if self._closed:
            return LimiterClosed(_CLOSED)
        with self._held():
            return self._refusal(reason or self._gate.reason)

    # To leave

    def leave(self, permit: Pass, outcome: Outcome) -> None:
        """Complete a permit; nothing if it is over, or of the process from which this one was forked."""
        with self._lock:
            state, permit.state = permit.state, OVER
            gate = self._gate
            if state is not HELD or permit.gate is not gate:
                return
            now = self.clock()
            served = gate.leave(permit.place, now)
            if permit.sheddable:
                self._exposed.discard(permit)
            if outcome is IGNORED:
                self._ignored += 1
            else:
                limit = self._learn(permit, now - permit.start_ns, outcome)
                if limit != gate.limit:
                    served = [*served, *gate.resize(max(1, limit), now)]
        if served:
            self._wake([*served])
        if self._abandoned:
            self._collect()

    def _learn(self, permit: Pass, rtt: int, outcome: Outcome) -> int:
        """Count a call that is a sample, and tell the law; return the limit from now on. Requires the lock."""
        if outcome is SUCCESS:
            self._succeeded += 1
            mean = self._mean_ns
            self._mean_ns = mean + (rtt - mean) / _RECENT if mean else rtt
        else:
            self._dropped += 1
        for observe in self._observers:
            observe(rtt)
        # As Sample(...), which takes 150 ns more.
        sample = _new(Sample, (permit.start_ns, rtt, permit.in_flight, outcome is DROPPED, permit.operation))
        try:
            return self._update(sample)
        except Exception:
            _logger.exception("%r failed at %r; the limit stays", self.law, sample)
            return self._gate.limit

    # Otherwise

    def abandon(self, gate: Gate | None, place: Partition) -> None:
        """Release what a permit held that was collected; also amid a method of this very door, in the same thread."""
        self._abandoned.append((gate, place))
        self._collect()

    def _collect(self) -> None:
        # Whoever held the lock comes here when it is free: nobody who was abandoned meanwhile is overlooked.
        while self._abandoned and self._lock.acquire(blocking=False):
            try:
                served = self._release_abandoned()
            finally:
                self._lock.release()
            self._wake(served)

    def _release_abandoned(self) -> list[Waiter]:
        served: list[Waiter] = []
        while self._abandoned:
            gate, place = self._abandoned.popleft()
            if gate is self._gate:
                self._lost += 1
                self._ignored += 1
                served += gate.leave(place, self.clock())
        return served

    def refresh(self) -> None:
        """Take over the limit of the law, which was changed from outside."""
        with self._held():
            served = self._gate.resize(max(1, self.law.limit), self.clock())
        self._wake(served)

    def calibrate(self, events: Sequence[str]) -> None:
        """Tell the law what the watchers saw in a period."""
        assert isinstance(self.law, Calibrated)
        with self._held():
            now = self.clock()
            served = self._gate.resize(max(1, self.law.calibrate(events, now)), now)
        self._wake(served)

    def expose(self, permit: Pass) -> None:
        """Let a permit that is held be given up if need be."""
        with self._held():
            self._exposed.add(permit)

    def shed(self, choose: Callable[[Sequence[Pass]], Sequence[Pass]]) -> None:
        """Tell those that are chosen among the exposed permits to give up."""
        with self._held():
            chosen = choose([permit for permit in self._exposed if not permit.shed])
            for permit in chosen:
                permit.shed = True
            self._shed += len(chosen)
        for permit in chosen:
            with suppress(RuntimeError):  # its event loop is closed: nobody is in its block any more
                permit.give_up()

    def close(self) -> None:
        """Let nobody enter any more, and send away who waits. Who is under way goes on, and leaves as ever."""
        with self._held():
            self._closed = True
            gone = self._gate.waiting.clear()
        self._wake(gone)

    def statistics(self, watchers: tuple[WatcherStatistics, ...]) -> ConcurrencyStatistics:
        with self._held():
            return ConcurrencyStatistics(
                limit=self._gate.limit,
                in_flight=self._gate.in_flight,
                waiting=self._gate.waiting.count,
                succeeded=self._succeeded,
                dropped=self._dropped,
                ignored=self._ignored,
                bypassed=self._bypassed,
                shed=self._shed,
                abandoned=self._lost,
                refused=dict(self._refused),
                watchers=watchers,
                partitions={p.name: PartitionStatistics(p.busy, p.guaranteed) for p in self._gate.partitions},
            )

    def after_fork(self) -> None:
        """Nobody is under way or waits in a child; what the parent's threads hold is released there."""
        self._lock = threading.Lock()
        self._gate = Gate(self._gate.limit, self._partitions, self.queue)
        self._abandoned.clear()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock."""
        with self._lock:
            yield
        self._collect()

    def _pass_by(self, permit: Pass) -> bool:
        with self._held():
            self._bypassed += 1
        permit.state = BYPASS
        return True

    def _refusal(self, reason: Reason) -> ConcurrencyLimited:
        """Requires the lock."""
        self._refused[reason] += 1
        gate = self._gate
        # A place is free every mean / limit; all who wait are ahead. An estimate: more may come meanwhile.
        wait = self._mean_ns / _SECOND * (gate.waiting.count + 1) / gate.limit if self._mean_ns else None
        return ConcurrencyLimited(reason, wait, limit=gate.limit, in_flight=gate.in_flight)

    def _wake(self, served: list[Waiter]) -> None:
        """Requires that the lock is free. Who cannot be woken leaves, and lets others enter."""
        for waiter in served:  # grows meanwhile
            try:
                waiter.wake()
            except RuntimeError:  # its event loop is closed
                if waiter.served:
                    with self._held():
                        served += self._gate.take_back(waiter, self.clock())


_doors: "weakref.WeakSet[Door]" = weakref.WeakSet()
"""Every door that lives: a fork concerns them all, and tells nobody else."""


def _after_fork() -> None:
    for door in list(_doors):
        door.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
