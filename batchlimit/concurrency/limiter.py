"""ConcurrencyLimiter: the concurrency limiter for threads."""

import math
from functools import cached_property

from batchlimit.base.unique import Closing
from batchlimit.base.waiting import patience
from batchlimit.concurrency.base_limiter import BaseLimiter
from batchlimit.concurrency.later import Admitted, Deadlines, Refused
from batchlimit.concurrency.permit import Permit


class ConcurrencyLimiter(Closing, BaseLimiter):
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
        every: The period of the watchers and of shedding (seconds, default 30).
        shedding: When to end calls that are under way, if overload lasts (default None: never).
        clock: Returns ns and never runs backwards (default `time.monotonic_ns`).

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: `every` is not above 0, or `shedding` or `Gitaly` has no watchers.

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
            priority: Callers of high priority are served first in the queue, and those of low priority are shed first
                (a whole number, default 0).
            sheddable: True if the call may be told to give up (default False); see Shedding.

        Returns:
            The permit, held until it is completed.

        Raises:
            ConcurrencyLimited: The call was refused; `reason` says why, `retry_after` when to come back.
            LimiterClosed: The limiter was closed.
            TypeError: `timeout` is no number, or `priority` of a call that is sheddable or has to wait is no whole
                number.
            ValueError: `timeout` is below 0.
        """
        permit = Permit(self._locked_gate, operation, priority, sheddable)
        wait = math.inf if timeout is None else patience(timeout)
        if seconds := self._locked_gate.enter(permit, partition, wait):
            permit._wait(partition, seconds)
        if sheddable:
            self._locked_gate.sheddable.add(permit)
        return permit

    def acquire_later(
        self,
        admitted: Admitted,
        refused: Refused,
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> Permit | None:
        """Return a permit at once, if there is room; else return None, wait without a thread, and be called back.

        Args:
            admitted: Called with the permit, held, when it is this call's turn, by the thread that made room: let it be
                quick.
            refused: Called with the error instead, in a background thread, if the call waited in vain.
            partition, timeout, operation, priority, sheddable: As of `acquire`, with the same defaults.

        Returns:
            The permit, held until it is completed; or None: one of the two functions will be called, once.

        Raises:
            ConcurrencyLimited: The call was refused, for it may not wait or the queue is full.
            LimiterClosed: The limiter was closed.
            TypeError, ValueError: As `acquire`.

        Example:
            >>> from batchlimit import ConcurrencyLimiter, Queue
            >>> from batchlimit.laws import Fixed
            >>> limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(10))
            >>> with limiter.acquire():
            ...     limiter.acquire_later(lambda permit: permit.success(), print)
            >>> limiter.statistics().succeeded
            2
            >>> limiter.close()
        """
        permit = Permit(self._locked_gate, operation, priority, sheddable)
        wait = math.inf if timeout is None else patience(timeout)
        return self._deadlines.enter(self._locked_gate, permit, partition, wait, (admitted, refused))

    @cached_property
    def _deadlines(self) -> Deadlines:
        return Deadlines(self._locked_gate.clock)

    def close(self) -> None:
        """Let no call enter any more; waiters get LimiterClosed, calls under way go on."""
        self._calibration.stop()
        self._locked_gate.close()
