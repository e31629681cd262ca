"""Permission for one call: what permits of both APIs have in common, and Permit for threads."""

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from batchlimit.base.blocking import warn_in_loop
from batchlimit.base.setting import whole
from batchlimit.base.steps import run
from batchlimit.base.unique import Unique
from batchlimit.base.waking import ThreadWakeup
from batchlimit.concurrency.classification import outcome_of, outcome_of_answer
from batchlimit.concurrency.gate import Gate
from batchlimit.concurrency.law import Outcome, Sample
from batchlimit.concurrency.partition import Partition
from batchlimit.concurrency.queue import GateWaiter
from batchlimit.errors import ConcurrencyLimited

if TYPE_CHECKING:
    from batchlimit.concurrency.locked_gate import LockedGate


class State(Enum):
    """Where a permit is in its life; the table of `batchlimit.concurrency` says what moves it on."""

    ASKED = auto()
    WAITING = auto()
    HELD = auto()
    LEFT = auto()
    BYPASS = auto()
    OVER = auto()


# Looked up once: an attribute of an Enum class takes 30 ns.
ASKED, WAITING, HELD, LEFT, BYPASS, OVER = State
SUCCESS, DROPPED, IGNORED = Outcome
_USUAL = 0  # the priority that a caller has who names none: to compare it takes 5 ns, and to look at its class 30
_new: Callable[[type[Sample], tuple[int, int, int, bool, str]], Sample] = tuple.__new__


class BasePermit(Unique):
    """What the permits of threads and of tasks share.

    `_enter` and `_leave` are the cost of every call, so both are written flat: their usual cases are Gate.enter and
    Gate.leave. A signal handler may raise wherever a function is called, so both change what belongs together with no
    call in between. The marker of a partition finds calls whose end was interrupted for all that: see `lost` there.
    """

    __slots__ = (
        "__weakref__", "_gate", "_in_flight", "_is_shed", "_locked_gate", "_marker", "_place", "_sheddable", "_state",
        "operation", "priority", "start_ns",
    )  # fmt: skip
    _instead = "complete it where it was acquired, and acquire another one there"

    # Set when it is held: the gate and the partition that count it, when it entered, how many were in flight then.
    _gate: Gate
    _place: Partition
    start_ns: int
    _in_flight: int
    _marker: object  # of the partition, as long as this permit is counted there
    # Set when it becomes sheddable: whether it was told to give up.
    _is_shed: bool

    def __init__(self, locked_gate: "LockedGate", operation: str, priority: int, sheddable: bool = False) -> None:
        self._state = ASKED  # first: also one with wrong arguments is collected
        if priority is not _USUAL and priority.__class__ is not int:
            whole("priority", priority, -math.inf, math.inf)
        self._locked_gate = locked_gate
        self.operation = operation
        self.priority = priority
        self._sheddable = sheddable

    def __repr__(self) -> str:
        what = f" for {self.operation!r}" if self.operation else ""
        return f"<{type(self).__name__}{what}: {self._state.name.lower()}{', shed' if self.shed else ''}>"

    @property
    def shed(self) -> bool:
        """Whether this call was told to give up."""
        return self._sheddable and getattr(self, "_is_shed", False)

    def success(self) -> None:
        """Complete the permit: the call was served."""
        self._leave(SUCCESS)

    def drop(self) -> None:
        """Complete the permit: load made the call fail."""
        self._leave(DROPPED)

    def ignore(self) -> None:
        """Complete the permit: the call tells nothing about the load."""
        self._leave(IGNORED)

    def answered(self, answer: object) -> None:
        """Complete the permit by what a service answered: 429, 503, 504 and errors with Retry-After are drops.

        499 and other 5xx tell nothing; the rest are successes.

        Args:
            answer: The response of httpx, requests or aiohttp, or a status.

        Raises:
            TypeError: The answer has no status.
        """
        self._leave(outcome_of_answer(answer))

    def _expose(self) -> None:
        """Let this call be shed for as long as it is under way."""
        self._is_shed, locked = False, self._locked_gate
        locked.do(lambda: locked.sheddable.update([self] if self._state is HELD else []))

    def _shed(self) -> None:
        """Tell the call to give up, from any thread; once, and only while it is under way."""
        with self._locked_gate.lock:
            if self._state is not HELD or self._is_shed:
                return
            self._is_shed = True
            self._locked_gate.counts.shed += 1
        with suppress(RuntimeError):  # its event loop is closed: no task is in its block any more
            self._give_up()

    def _give_up(self) -> None:
        """Make the call end, from any thread; RuntimeError if nobody can be told any more."""

    def _enter(self, partition: str, wait: float) -> float:
        """Enter and return 0, or return for how long the call may wait (s, at most `wait`), or raise the refusal."""
        locked = self._locked_gate
        if locked.bypass is not None and locked.bypass(self.operation, partition):
            with locked.lock:
                locked.counts.bypassed += 1
            self._state = BYPASS
            return 0.0
        now = locked.clock()
        seconds, refusal = 0.0, None
        with locked.lock:
            gate = locked.gate
            place = gate.by_name.get(partition) if partition else gate.rest
            if place is None:
                place = locked.partition_of_unknown(self, partition)
            if gate.in_flight < gate.open_to:
                self._marker = place.marker  # first: never are fewer referring to it than are counted
                gate.in_flight += 1
                place.busy += 1
                reason = None
            else:
                reason = locked.enter_slowly(self, place, now)
            if reason is None:
                self._gate, self._place = gate, place
                self.start_ns, self._in_flight = now, gate.in_flight
                self._state = HELD
            else:
                self._state = OVER  # of one that may wait, too: nobody is to complete it
                if not (seconds := locked.queue.patience(wait)):
                    refusal = locked.counts.refusal(gate, place, reason, now)
        if locked.deferred and not locked.is_changing:
            locked.run_deferred()
        if refusal is None:
            return seconds
        try:
            raise refusal  # not under the lock: an exception that leaves the block takes 350 ns more
        finally:
            del refusal  # which would refer to itself, by this frame

    def _leave(self, outcome: Outcome) -> None:
        """Be complete; nothing changes if it is so already, or is of the process this one was forked from."""
        locked = self._locked_gate
        now = locked.clock()
        with locked.lock:
            gate = locked.gate
            if self._state is HELD and self._gate is gate:
                gate.in_flight -= 1
                self._place.busy -= 1
                self._marker = None
                self._state = LEFT
            if locked.is_changing:
                locked.deferred.append(partial(self._leave, outcome))
                return
            if self._state is not LEFT:
                if self._state is ASKED or self._state is WAITING:
                    raise RuntimeError(f"{self!r} cannot be completed: nobody entered it; was it awaited?")
                self._state = OVER
                return
            self._state = OVER
            locked.is_changing = True
            try:
                if self._sheddable:
                    locked.sheddable.discard(self)
                counts = locked.counts
                if outcome is IGNORED:
                    counts.ignored += 1
                else:
                    rtt = now - self.start_ns
                    if outcome is SUCCESS:
                        counts.succeeded += 1
                        counts.last_rtt_ns = rtt
                    else:
                        counts.dropped += 1
                    # As Sample(...), which takes 150 ns more.
                    told = self.start_ns, rtt, self._in_flight, outcome is DROPPED, self.operation
                    try:
                        for observe in locked.observers:
                            observe(rtt)
                        if (limit := locked.update(_new(Sample, told))) != gate.limit:
                            locked.take_over(limit, now, dropped=outcome is DROPPED)
                    except Exception as error:  # noqa: BLE001  the caller has done its work, and cannot help it
                        locked.deferred.append(partial(locked.report, error))
                if gate.waiting.count:
                    gate.serve(now)
            finally:
                locked.is_changing = False
        if gate.unwoken:
            locked.wake()
        if locked.deferred:
            locked.run_deferred()

    def __del__(self) -> None:
        try:
            held = self._state is HELD
        except AttributeError:  # a signal handler raised before __init__ began
            return
        if held:
            if self._gate is (locked := self._locked_gate).gate:
                with locked.lock:
                    locked.counts.abandoned += 1
                self._leave(IGNORED)  # first: a warning may be an error
            warnings.warn(f"{self!r} was never completed", ResourceWarning, stacklevel=2, source=self)


_SECOND = 1_000_000_000


class Permit(BasePermit):
    """Permission for one call to be under way, held from `acquire` on; the end of its `with` block completes it.

    A block that ends without an exception completes it as a success, else `classify` of the limiter says how.
    `success`, `drop` and `ignore` complete it sooner, from any thread. The first of these counts, later ones change
    nothing. The garbage collector releases a permit that nobody completes, as ignored, with a ResourceWarning.

    Nobody can end a thread: a sheddable call has to `check` whether it is to give up.

    Attributes:
        operation: What kind of call it is, as `acquire` was told.
        priority: Its priority, as `acquire` was told.
        start_ns: When it was admitted (ns of the limiter's clock); not set if `bypass` let the call in.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Fixed
        >>> limiter = ConcurrencyLimiter(Fixed(2))
        >>> with limiter.acquire() as permit:
        ...     permit.drop()  # the backend answered "overloaded"
        >>> limiter.statistics().dropped
        1
        >>> limiter.close()
    """

    __slots__ = ()

    def check(self) -> None:
        """Raise if this call was told to give up; a sheddable call is to call this now and then.

        Raises:
            ConcurrencyLimited: The call was told to give up; the reason is "shed".
        """
        if self.shed:
            raise self._locked_gate.refusal(self._place, "shed")

    def __enter__(self) -> Self:
        if self._state is OVER:
            raise RuntimeError(f"{self!r} was completed before")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConcurrencyLimited) and error.reason == "shed" and self.shed:
            self.ignore()
        self._leave(SUCCESS if error is None else outcome_of(error, self._locked_gate.classify))

    def _wait(self, partition: str, seconds: float) -> None:
        """Wait in the queue, and return with the permit held."""
        warn_in_loop()
        locked = self._locked_gate
        wakeup = ThreadWakeup() if locked.time is None else locked.time.thread_wakeup()

        def wait() -> None:
            left, until = seconds, locked.clock() + seconds * _SECOND
            while left > 0 and not wakeup.wait(min(left, locked.pause())):
                locked.catch_up()
                left = (until - locked.clock()) / _SECOND

        run(locked.waiting(self, GateWaiter(wakeup.wake, self.priority), partition, wait))
