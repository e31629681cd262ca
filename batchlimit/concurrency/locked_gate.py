"""Door: the gate and its law behind one lock; threads and tasks enter and leave through it."""

import logging
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from batchlimit.concurrency.classification import Classify
from batchlimit.concurrency.gate import Gate, Reason
from batchlimit.concurrency.law import Calibrated, Law, Outcome, Sample
from batchlimit.concurrency.laws.fixed import Settable
from batchlimit.concurrency.laws.watched import Watched
from batchlimit.concurrency.partition import Partition, Partitions
from batchlimit.concurrency.permit import BYPASS, HELD, OVER, BasePermit
from batchlimit.concurrency.queue import Queue, Waiter
from batchlimit.concurrency.statistics import ConcurrencyStatistics, PartitionStatistics, WatcherStatistics
from batchlimit.concurrency.watchers.base import Watcher
from batchlimit.concurrency.watchers.latency import LatencyWatcher
from batchlimit.errors import ConcurrencyLimited, LimiterClosed

_logger = logging.getLogger("batchlimit")

Bypass = Callable[[str, str], bool]
"""Says of a call, by its operation and its partition, that no limit is for it."""

_SECOND = 1_000_000_000
_SOON = 0.001
"""Seconds after which to look again at the soonest: timers and clocks do not agree to the last."""
_RECENT = 16
"""How many of the last refusals the mean rtt is about, for saying when to come back."""

_CLOSED = "this concurrency limiter was closed"

_new: Callable[[type[Sample], tuple[int, int, int, bool, str]], Sample] = tuple.__new__

# Looked up once: an attribute of an Enum class takes 30 ns.
SUCCESS, DROPPED, IGNORED = Outcome


class LockedGate:
    """One gate for threads and for tasks of any event loop. No method blocks, but for microseconds on the lock.

    `enter` and `leave` are what a call costs, and are written flat: their usual cases are Gate.enter and Gate.leave.

    The garbage collector and signal handlers run anywhere, in the thread that holds the lock too, and may complete
    permits there. So the lock is reentrant, and what would change the gate amid another change is done after it. And
    a signal handler may raise wherever something is called: in `enter` and `leave`, what belongs together is changed
    with no call in between. Serving those who wait takes many: an exception amid that may cost a place.
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
        self._law_failed = False
        self._observers = [each.observe for each in watchers if isinstance(each, LatencyWatcher)]
        self.queue, self._classify, self.clock = queue, classify, clock
        self._partitions, self._bypass = partitions, bypass
        # Held to touch the gate, the law and what is counted; never while somebody is woken or something is logged.
        self._lock = threading.RLock()
        self._inside = False  # whether whoever holds the lock is amid a change
        self._later: deque[Callable[[], None]] = deque()
        self._gate = Gate(_checked(law.limit), partitions, queue)
        self._closed = False
        self._succeeded = self._dropped = self._ignored = self._bypassed = self._lost = self._shed = self._unknown = 0
        self._refused: Counter[str] = Counter()
        self._last_ns = 0
        self._mean_ns = 0.0
        self._exposed: weakref.WeakSet[BasePermit] = weakref.WeakSet()
        if isinstance(law, Settable):
            law.listen(self.refresh)
        _doors.add(self)

    def __repr__(self) -> str:
        return f"<Door of {self.law!r}: {self._gate!r}>"

    @property
    def limit(self) -> int:
        return self._gate.limit

    def patience(self) -> float:
        """After how many seconds who waits should `look` again: time alone frees what strict shares keep."""
        if not self._gate.strict:
            return float("inf")
        return max(_SOON, self._gate.lent_in(self.clock(), _SECOND) / _SECOND)

    # To enter

    def enter(self, permit: BasePermit, partition: str) -> Reason | None:
        """Enter if there is room, else return why not; LimiterClosed."""
        if self._bypass is not None and self._bypass(permit.operation, partition):
            self._pass_by(permit)
            return None
        now = self.clock()
        with self._lock:
            gate = self._gate
            place = gate.places.get(partition) if partition else gate.rest
            if place is None:
                place = self._place_of_unknown(permit, partition)
            if gate.in_flight < gate.open_to:
                gate.in_flight += 1
                place.busy += 1
            elif reason := self._enter_slowly(permit, place, now):
                return reason
            permit.gate, permit.place, permit.start_ns, permit.in_flight = gate, place, now, gate.in_flight
            permit.state = HELD
        if self._later:
            self._catch_up()
        return None

    def _place_of_unknown(self, permit: BasePermit, partition: str) -> Partition:
        """Return where a name without a share belongs; ConcurrencyLimited: nowhere. Requires the lock."""
        gate = self._gate
        if self._partitions is None or self._closed:
            return gate.rest
        self._unknown += 1
        if self._partitions.unknown == "spare":
            return gate.rest
        self._refused["unknown_partition"] += 1
        permit.state = OVER
        detail = f"no partition is named {partition!r}; unknown='spare' of Partitions would let it have what is spare"
        raise ConcurrencyLimited("unknown_partition", None, limit=gate.limit, in_flight=gate.in_flight, detail=detail)

    def _enter_slowly(self, permit: BasePermit, place: Partition, now: int) -> Reason | None:
        """As Gate.enter, amid which nobody leaves. Requires the lock."""
        if self._closed:
            permit.state = OVER
            raise LimiterClosed(_CLOSED)
        gate, nested, self._inside = self._gate, self._inside, True
        try:
            return None if gate.enter(place, now) else gate.reason
        finally:
            self._inside = nested

    def line_up(self, waiter: Waiter, partition: str) -> None:
        """Wait, having been refused entry; ConcurrencyLimited: the queue is full. LimiterClosed.

        Who is served is woken, and so is who waits when the limiter is closed: once, by any thread, without the lock.
        To wake raises RuntimeError where nobody can be woken any more. Whatever happens, `end_wait` has to follow.
        """
        served: Sequence[Waiter] = ()
        try:
            with self._amid():
                if self._closed:
                    raise LimiterClosed(_CLOSED)
                if reason := self._gate.line_up(self._gate.partition(partition), waiter):
                    raise self._refusal(reason)
                served = self._gate.serve(self.clock())
        finally:
            self._wake(served)

    def look(self) -> None:
        """Let enter whom time alone lets."""
        self._change(lambda: self._gate.serve(self.clock()))

    def end_wait(self, permit: BasePermit, waiter: Waiter) -> bool:
        """Wait no longer; return whether the permit is held now. A second time it changes nothing."""
        with self._amid():
            if permit.state is HELD or waiter.gate is not self._gate:  # of the process that this one was forked from
                return permit.state is HELD
            if held := not self._gate.give_up(waiter):
                permit.hold(self._gate, waiter)
        if self._gate.behind:
            self.look()
        return held

    def refusal(self, reason: Reason) -> ConcurrencyLimited | LimiterClosed:
        """Count a refusal, and return it to be raised."""
        if self._closed and reason != "shed":
            return LimiterClosed(_CLOSED)
        with self._amid():
            return self._refusal(reason)

    # To leave

    def leave(self, permit: BasePermit, outcome: Outcome) -> None:
        """Complete a permit; nothing if it is over, or of the process from which this one was forked."""
        now = self.clock()
        served: Sequence[Waiter] = ()
        try:
            with self._lock:
                gate = self._gate
                if self._inside:
                    self._later.append(partial(self.leave, permit, outcome))
                    return
                if permit.state is not HELD or permit.gate is not gate:
                    permit.end()
                    return
                permit.state = OVER
                gate.in_flight -= 1
                permit.place.busy -= 1
                self._inside = True
                try:
                    if permit.sheddable:
                        self._exposed.discard(permit)
                    if outcome is IGNORED:
                        self._ignored += 1
                    else:
                        rtt = now - permit.start_ns
                        if outcome is SUCCESS:
                            self._succeeded += 1
                            self._last_ns = rtt
                        else:
                            self._dropped += 1
                        # As Sample(...), which takes 150 ns more.
                        told = permit.start_ns, rtt, permit.in_flight, outcome is DROPPED, permit.operation
                        try:
                            for observe in self._observers:
                                observe(rtt)
                            if (limit := self._update(_new(Sample, told))) != gate.limit:
                                served = gate.resize(_checked(limit), now)
                        except Exception as error:  # noqa: BLE001  the caller has done its work, and cannot help it
                            self._later.append(partial(self._report, error))
                    if gate.waiting.count:
                        served = [*served, *gate.serve(now)]
                finally:
                    self._inside = False
        finally:
            if served:
                self._wake(served)
        if self._later:
            self._catch_up()

    def leave_by(self, permit: BasePermit, error: BaseException | None) -> None:
        """Complete a permit whose block ended, in this error if any."""
        self.leave(permit, SUCCESS if error is None else self._outcome(error))

    def _outcome(self, error: BaseException) -> Outcome:
        try:
            found = self._classify(error)
        except Exception:
            _logger.exception("classify failed; the call is ignored")
            return IGNORED
        if isinstance(found, Outcome):
            return found
        _logger.error("classify must return an Outcome, not %r; the call is ignored", found)
        return IGNORED

    def _report(self, error: Exception) -> None:
        """Say that the law failed: the first time loudly, for it may do so at each call."""
        level, self._law_failed = logging.DEBUG if self._law_failed else logging.ERROR, True
        _logger.log(level, "%r failed; the limit stays", self.law, exc_info=error)

    def abandon(self, permit: BasePermit) -> None:
        """Release what a permit holds that was collected."""
        if permit.gate is self._gate:
            with self._lock:
                self._lost += 1
            self.leave(permit, IGNORED)

    # Otherwise

    def refresh(self) -> None:
        """Take over the limit of the law, which was changed from outside."""
        self._change(lambda: self._gate.resize(_checked(self.law.limit), self.clock()))

    def calibrate(self, events: Sequence[str]) -> None:
        """Tell the law what the watchers saw in a period."""
        law = self.law
        assert isinstance(law, Calibrated)
        self._change(lambda: self._gate.resize(_checked(law.calibrate(events, now := self.clock())), now))

    def expose(self, permit: BasePermit) -> None:
        """Let a permit be given up if need be, as long as it is held."""
        with self._amid():
            if permit.state is HELD:
                permit.told = False
                self._exposed.add(permit)

    def shed(self, choose: Callable[[Sequence[BasePermit]], Sequence[BasePermit]]) -> None:
        """Tell those that are chosen among the exposed permits to give up."""
        with self._amid():
            calls = [permit for permit in self._exposed if permit.state is HELD and not permit.shed]
        chosen = choose(calls)  # without the lock: its key is the user's
        with self._amid():
            told = [permit for permit in chosen if permit.state is HELD and not permit.shed]
            self._shed += len(told)
            for permit in told:
                permit.told = True
        for permit in told:
            with suppress(RuntimeError):  # its event loop is closed: nobody is in its block any more
                permit.give_up()

    def close(self) -> None:
        """Let nobody enter any more, and send away who waits. Who is under way goes on, and leaves as ever."""
        self._change(self._shut)

    def _shut(self) -> Sequence[Waiter]:
        self._closed = True
        return self._gate.close()

    def statistics(self, watchers: tuple[WatcherStatistics, ...]) -> ConcurrencyStatistics:
        with self._lock:
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
                unknown=self._unknown,
                partitions={p.name: PartitionStatistics(p.busy, p.guaranteed) for p in self._gate.partitions},
            )

    def after_fork(self) -> None:
        """Nobody is under way or waits in a child; what the parent's threads hold is released there."""
        self._lock, self._inside = threading.RLock(), False
        self._gate = Gate(self._gate.limit, self._partitions, self.queue)
        if self._closed:
            self._gate.close()
        self._later.clear()
        self._exposed = weakref.WeakSet()

    @contextmanager
    def _amid(self) -> Iterator[None]:
        """Hold the lock, and let nobody change anything meanwhile, in this thread neither."""
        nested = False
        try:
            with self._lock:
                nested, self._inside = self._inside, True
                try:
                    yield
                finally:
                    self._inside = nested
        finally:
            if not nested:
                self._catch_up()

    def _change(self, change: Callable[[], Sequence[Waiter]]) -> None:
        """Make a change, or plan it if this thread is amid another; wake whom it served."""
        served: list[Waiter] = []
        try:
            self._make(change, served)
        finally:
            self._wake(served)

    def _make(self, change: Callable[[], Sequence[Waiter]], served: list[Waiter]) -> None:
        """Make a change, or plan it if this thread is amid another; put down whom it served."""
        with self._lock:
            if self._inside:
                self._later.append(partial(self._change, change))
                return
        with self._amid():
            served.extend(change())

    def _catch_up(self) -> None:
        """Do what came up amid a change, in this thread or another."""
        with suppress(IndexError):
            while True:
                self._later.popleft()()

    def _pass_by(self, permit: BasePermit) -> None:
        with self._lock:
            self._bypassed += 1
        permit.state = BYPASS

    def _refusal(self, reason: Reason) -> ConcurrencyLimited:
        """Requires the lock."""
        self._refused[reason] += 1
        gate = self._gate
        # The mean is of calls that ended just before refusals: to keep it at each call takes 60 ns, mostly for nobody.
        self._mean_ns += (self._last_ns - self._mean_ns) / (_RECENT if self._mean_ns else 1)
        wait = gate.wait_ns(self._mean_ns, reason, self.clock())
        return ConcurrencyLimited(
            reason, None if wait is None else wait / _SECOND, limit=gate.limit, in_flight=gate.in_flight
        )

    def _wake(self, served: Sequence[Waiter]) -> None:
        """Requires that the lock is free. Who cannot be woken leaves, and lets others enter."""
        # Not by recursion: of a loop that was closed thousands may wait, one behind the other.
        served = list(served)
        for waiter in served:
            try:
                waiter.wake()
            except RuntimeError:  # its event loop is closed
                self._make(partial(self._take_back, waiter), served)

    def _take_back(self, waiter: Waiter) -> Sequence[Waiter]:
        ours = waiter.served and waiter.gate is self._gate
        return self._gate.take_back(waiter, self.clock()) if ours else ()


def _checked(limit: int) -> int:
    """Return a limit that a law gave: at least 1; TypeError if it is no whole number."""
    if limit.__class__ is not int:
        raise TypeError(f"a law must give a whole number of calls, not {limit!r}")
    return limit if limit > 0 else 1


_doors: "weakref.WeakSet[LockedGate]" = weakref.WeakSet()
"""Every door that lives: a fork concerns them all, and tells nobody else."""


def _after_fork() -> None:
    for locked_gate in list(_doors):
        locked_gate.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
