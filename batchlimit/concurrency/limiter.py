"""ConcurrencyLimiter: the concurrency limiter for threads."""

import math
from types import TracebackType
from typing import Self

from batchlimit.blocking import Turn, warn_in_loop
from batchlimit.concurrency.base_limiter import BaseLimiter
from batchlimit.concurrency.gate import Reason
from batchlimit.concurrency.permit import OVER, BasePermit
from batchlimit.concurrency.queue import Waiter
from batchlimit.errors import ConcurrencyLimited
from batchlimit.waiting import patience


class Permit(BasePermit):
    """Leave for one call to be under way, held from `acquire` on; the end of its `with` block completes it.

    A block that ends without an exception completes it as a success, else `classify` of the limiter says how.
    `success`, `drop` and `ignore` complete it sooner, from any thread. The first of these counts, later ones change
    nothing. The garbage collector releases a permit that nobody completes, as ignored, with a ResourceWarning.

    Nobody can end a thread: a sheddable call has to `check` whether it is to give up.

    Attributes:
        operation: What kind of call it is, as `acquire` was told.
        priority: Its priority for shedding, as `acquire` was told.
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


_SECOND = 1_000_000_000


class ConcurrencyLimiter(BaseLimiter):
    """Limits how many calls are under way at once, to the number that its law finds best.

    It is safe in threads and over fork.

    Args:
        law: Sets the limit; belongs to this limiter alone (None, the default: `Knee`, with drains by the time of day).
        partitions: Guarantees parts of the limit by name (default None: no parts).
        queue: Where calls wait that find no room (default: nobody waits).
        classify: Returns what an exception that ended a call tells about the load (default: `classify`).
        bypass: Called with operation and partition; returns True for calls that are not limited (default None: all
            are).
        watchers: Look at the machine once a period, in a background thread, and tell the law (default: none).
        every: The period of the watchers (seconds, default 30).
        shedding: When to end calls that are under way, if what the watchers see persists (default None: never).
        clock: Returns ns and never runs backwards (default `time.monotonic_ns`).

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: `every` is not above 0, or `shedding` has no watchers.

    Example:
        >>> from batchlimit import ConcurrencyLimited, ConcurrencyLimiter
        >>> from batchlimit.laws import Fixed
        >>> limiter = ConcurrencyLimiter(Fixed(1))
        >>> with limiter.acquire():
        ...     try:
        ...         limiter.acquire()
        ...     except ConcurrencyLimited as refusal:
        ...         print(refusal.reason)
        limit
        >>> limiter.close()
    """

    def acquire(
        self,
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> Permit:
        """Return a permit, at once or when it is this caller's turn.

        Args:
            partition: The name of the call's partition (default "": what no share guarantees).
            timeout: How long to wait at most (seconds). None, the default: as long as the queue lets it; 0: not at all.
            operation: What kind of call it is, for laws that hold unlike kinds apart (default "").
            priority: Calls of low priority are shed first (a whole number, default 0).
            sheddable: True if the call may be told to give up (default False); see Shedding.

        Returns:
            The permit, held until it is completed.

        Raises:
            ConcurrencyLimited: The call was refused; `reason` says why, `retry_after` when to come back.
            LimiterClosed: The limiter was closed.
            TypeError: `timeout` is no number, or `priority` of a sheddable call is no whole number.
            ValueError: `timeout` is below 0.
        """
        permit = Permit(self._locked_gate, operation, priority, sheddable)
        wait = math.inf if timeout is None else patience(timeout)
        if reason := self._locked_gate.enter(permit, partition):
            self._wait(permit, partition, wait, reason)
        if sheddable:
            self._locked_gate.exposed.add(permit)
        return permit

    def _wait(self, permit: Permit, partition: str, timeout: float, reason: Reason) -> None:
        """Wait in the queue, having been refused for this reason, and return with the permit held."""
        waiters = self._locked_gate.waiters
        seconds = waiters.longest(timeout)
        if seconds <= 0:
            raise self._locked_gate.refusal(reason)
        warn_in_loop()
        turn = Turn()
        waiter = Waiter(turn.wake)
        try:
            waiters.join(waiter, partition)
            self._await(turn, seconds)
            held = waiters.leave(permit, waiter)
        except BaseException:
            if waiters.leave(permit, waiter):
                permit.ignore()
            raise
        if not held:
            raise self._locked_gate.refusal("queue_timeout")

    def _await(self, turn: Turn, seconds: float) -> None:
        """Return when woken, or after so many seconds."""
        clock, waiters = self._locked_gate.clock, self._locked_gate.waiters
        until = clock() + seconds * _SECOND
        while seconds > 0 and not turn.wait(min(seconds, waiters.pause())):
            waiters.serve()
            seconds = (until - clock()) / _SECOND

    def close(self) -> None:
        """Let no call enter any more; waiters get LimiterClosed, calls under way go on."""
        self._calibration.stop()
        self._locked_gate.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
