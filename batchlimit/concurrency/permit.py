"""Permission for one call: what permits of both APIs have in common, and Permit for threads."""

import warnings
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Self

from batchlimit.base.blocking import warn_in_loop
from batchlimit.base.steps import Steps, run
from batchlimit.base.unique import Unique
from batchlimit.base.waking import ThreadWakeup
from batchlimit.concurrency.classification import outcome_of_answer
from batchlimit.concurrency.gate import Gate
from batchlimit.concurrency.law import Outcome
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


class BasePermit(Unique):
    """What the permits of threads and of tasks share. The locked gate writes what has an underscore: that is faster."""

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
        if sheddable and not isinstance(priority, int):
            raise TypeError(f"the priority of what may be shed must be a whole number, not {priority!r}")
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
        self._locked_gate.leave(self, SUCCESS)

    def drop(self) -> None:
        """Complete the permit: load made the call fail."""
        self._locked_gate.leave(self, DROPPED)

    def ignore(self) -> None:
        """Complete the permit: the call tells nothing about the load."""
        self._locked_gate.leave(self, IGNORED)

    def answered(self, answer: object) -> None:
        """Complete the permit by what a service answered: 429, 503, 504 and errors with Retry-After are drops.

        499 and other 5xx tell nothing; the rest are successes.

        Args:
            answer: The response of httpx, requests or aiohttp, or a status.

        Raises:
            TypeError: The answer has no status.
        """
        self._locked_gate.leave(self, outcome_of_answer(answer))

    def _give_up(self) -> None:
        """Make the call end, once, from any thread; RuntimeError if nobody can be told any more."""

    def _waiting(self, waiter: GateWaiter, partition: str, wait: Callable[[], object]) -> Steps[None]:
        """Wait in the queue, as a thread or a task does; end with the permit held, or raise why it is not."""
        section = self._locked_gate.section
        try:
            section.join_queue(waiter, partition)
            yield wait()
            if not section.leave_queue(self, waiter):
                raise section.in_vain(waiter)
        except BaseException:
            if section.leave_queue(self, waiter):
                self.ignore()
            if self._state is WAITING:
                self._state = OVER
            raise

    def _hold(self, gate: Gate, waiter: GateWaiter) -> None:
        """Be held, in place of the waiter that was served."""
        self._gate, self._place = gate, waiter.partition
        self.start_ns, self._in_flight = waiter.start_ns, waiter.in_flight
        self._marker, waiter.marker = waiter.marker, None
        waiter.served = False  # it is the permit now that is under way
        self._state = HELD

    def _end(self) -> None:
        """Be over, where nothing was held; RuntimeError if no call has entered it yet."""
        if self._state is ASKED or self._state is WAITING:
            raise RuntimeError(f"{self!r} cannot be completed: nobody entered it; was it awaited?")
        self._state = OVER

    def __del__(self) -> None:
        try:
            held = self._state is HELD
        except AttributeError:  # a signal handler raised before __init__ began
            return
        if held:
            self._locked_gate.abandon(self)  # first: a warning may be an error
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
            raise self._locked_gate.refusal("shed")

    def __enter__(self) -> Self:
        if self._state is OVER:
            raise RuntimeError(f"{self!r} was completed before")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConcurrencyLimited) and error.reason == "shed" and self.shed:
            self.ignore()
        self._locked_gate.leave_by(self, error)

    def _wait(self, partition: str, seconds: float) -> None:
        """Wait in the queue, and return with the permit held."""
        warn_in_loop()
        locked_gate, section = self._locked_gate, self._locked_gate.section
        wakeup = ThreadWakeup() if locked_gate.time is None else locked_gate.time.thread_wakeup()

        def wait() -> None:
            left, until = seconds, locked_gate.clock() + seconds * _SECOND
            while left > 0 and not wakeup.wait(min(left, section.pause())):
                section.catch_up()
                left = (until - locked_gate.clock()) / _SECOND

        run(self._waiting(GateWaiter(wakeup.wake, self.priority), partition, wait))
