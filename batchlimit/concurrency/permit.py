"""Permit: permission for one call to be under way in a thread."""

from types import TracebackType
from typing import Self

from batchlimit.base.blocking import warn_in_loop
from batchlimit.base.waking import ThreadWakeup
from batchlimit.concurrency.base_permit import OVER, BasePermit
from batchlimit.concurrency.locked_gate import LockedGate
from batchlimit.concurrency.queue import GateWaiter
from batchlimit.errors import ConcurrencyLimited

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
        locked_gate = self._locked_gate
        waiters = locked_gate.waiters
        warn_in_loop()
        turn = ThreadWakeup() if locked_gate.time is None else locked_gate.time.thread_turn()
        waiter = GateWaiter(turn.wake, self.priority)
        try:
            waiters.join(waiter, partition)
            _await(turn, seconds, locked_gate)
            held = waiters.leave(self, waiter)
        except BaseException:
            if waiters.leave(self, waiter):
                self.ignore()
            raise
        if not held:
            raise waiters.in_vain(waiter)


def _await(turn: ThreadWakeup, seconds: float, locked_gate: LockedGate) -> None:
    """Return when woken, or after so many seconds."""
    clock, waiters = locked_gate.clock, locked_gate.waiters
    until = clock() + seconds * _SECOND
    while seconds > 0 and not turn.wait(min(seconds, waiters.pause())):
        waiters.look()
        seconds = (until - clock()) / _SECOND
