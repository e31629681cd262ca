"""ConcurrencyLimiter for threads, and what all limiters of the calls of one process have in common."""

import math
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, overload

from batchlimit.base.setting import function, of_kind
from batchlimit.base.unique import AsyncClosing, Closing, Unique
from batchlimit.base.waiting import patience
from batchlimit.concurrency.classification import Classify, classify
from batchlimit.concurrency.later import Admitted, Deadlines, Refused
from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws.knee.knee import Knee
from batchlimit.concurrency.locked_gate import Bypass, GateOptions, LockedGate, prepared
from batchlimit.concurrency.partition import Partitions
from batchlimit.concurrency.permit import Permit
from batchlimit.concurrency.queue import NO_QUEUE, Queue
from batchlimit.concurrency.shedding import Shedding
from batchlimit.concurrency.statistics import ConcurrencyStatistics
from batchlimit.concurrency.watchers.rounds import Rounds
from batchlimit.concurrency.watchers.watcher import Watcher

if TYPE_CHECKING:
    from batchlimit.concurrency.keyed.gates import KeyedGates


class LocalLimiter(Unique):
    """What calls of one process enter, and the rounds that watch the machine for it."""

    _instead = "make one in each process: each limits itself"
    _gates: "LockedGate | KeyedGates"

    def _begin(self, gates: "LockedGate | KeyedGates", watchers: Iterable[Watcher], every: float, alone: bool) -> None:
        self._gates, self._rounds = gates, Rounds(watchers, gates.end_period, every=every, alone=alone)
        self._rounds.start()
        weakref.finalize(self, self._rounds.retire)  # one that was dropped unclosed leaves no thread behind

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._gates!r}>"


class ThreadedLimiter(Closing, LocalLimiter):
    """A local limiter whose callers are threads."""

    @cached_property
    def _deadlines(self) -> Deadlines:
        return Deadlines(self._gates.clock)

    def close(self) -> None:
        """Let no call enter any more; waiters get LimiterClosed, calls under way go on."""
        self._rounds.stop()
        self._gates.close()


class TaskLimiter(AsyncClosing, LocalLimiter):
    """A local limiter whose callers are tasks."""

    async def close(self) -> None:
        """Let no call enter any more; waiters get LimiterClosed, calls under way go on."""
        self._rounds.stop(0)  # a watcher that hangs is not waited for
        self._gates.close()


class BaseLimiter(LocalLimiter):
    """A locked gate and its watchers. Each of the two APIs has its own way to wait at the gate."""

    def __init__(
        self,
        law: Law | None = None,
        *,
        partitions: Partitions | None = None,
        queue: Queue = NO_QUEUE,
        classify: Classify = classify,
        bypass: Bypass | None = None,
        watchers: Sequence[Watcher] = (),
        every: float = 30.0,
        shedding: Shedding | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        of_kind("partitions", partitions, Partitions | None, 'like Partitions({"live": 0.5})')
        of_kind("queue", queue, Queue, "like Queue(100)")
        options = GateOptions.checked(classify, bypass, watchers, shedding, clock)
        law = prepared(Knee() if law is None else law, options)
        gate = self._locked_gate = LockedGate(law, partitions, queue, options)
        self._begin(gate, options.watchers, every, shedding is not None)

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._locked_gate.gate.limit

    @overload
    def listen(self, changed: Callable[[int, int], object]) -> None: ...
    @overload
    def listen(self, changed: Callable[[int, int, str], object], *, why: Literal[True]) -> None: ...
    def listen(self, changed: Callable[..., object], *, why: bool = False) -> None:
        """Have a function called after each change of the limit.

        It is called in the thread that ended a call, set the limit or watches the machine, without any lock: let it be
        quick. What it raises is logged. Two changes that two threads make at once may be told in either order.

        These are the reasons:

        - "room": so few calls queue that more may come
        - "late": calls took too long
        - "loss": calls failed for lack of capacity
        - "unused": far fewer calls came of late than the limit lets
        - "drain": the law looks how long calls take while few are under way, or it is done with that; no trouble
        - "trust": such a drain showed that calls take longer without a queue, too, so the limit is as it was before
        - "watchers": they had a reason to back off in the last period, or none
        - "operator": somebody set the limit

        Args:
            changed: Gets the limit before and after (calls).
            why: Whether `changed` gets the reason, too (default False).

        Example:
            >>> from batchlimit import ConcurrencyLimiter
            >>> from batchlimit.laws import Settable
            >>> law = Settable(20)
            >>> limiter = ConcurrencyLimiter(law)
            >>> limiter.listen(lambda before, after, why: print(before, "->", after, why), why=True)
            >>> law.set_limit(30)
            20 -> 30 operator
            >>> limiter.close()
        """
        self._locked_gate.listen(function("changed", changed), why)

    def statistics(self) -> ConcurrencyStatistics:
        """Return how many calls are under way and wait now, and what was counted so far.

        Returns:
            A copy, which changes no more.
        """
        return self._locked_gate.statistics(self._rounds.statistics())


class ConcurrencyLimiter(ThreadedLimiter, BaseLimiter):
    """Limits how many calls are under way at once, to the number that its law finds best.

    It is safe in threads and over fork.

    Args:
        law: Sets the limit; belongs to this limiter alone (None, the default: `Knee`, with drains by the time of day).
        partitions: Guarantees parts of the limit by name (default None: no parts).
        queue: Where calls wait that find no room (default: nobody waits).
        classify: Returns what an exception that ended a call tells about the load (default: `classify`).
        bypass: Returns True for calls that are not limited, by operation and partition (default None: all are).
        watchers: Look at the machine once a period, in a background thread, and tell the law (default: none).
        every: The period of the watchers and of shedding (seconds, default 30).
        shedding: When to end calls that are under way, if overload lasts (default None: never).
        clock: Returns ns and never runs backwards (default `time.monotonic_ns`).

    Raises:
        TypeError, ValueError: An argument is of the wrong type or out of its range, or `shedding` or `Gitaly` has no
            watchers.

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
            timeout: How long to wait in the queue, if there is one (seconds; default None: as it lets; 0: not at all).
            operation: What kind of call it is, for laws that hold unlike kinds apart (default "").
            priority: Callers of high priority are served first in the queue, and those of low priority are shed first
                (a whole number, default 0).
            sheddable: True if the call may be told to give up (default False); see Shedding.

        Returns:
            The permit, held until it is completed.

        Raises:
            ConcurrencyLimited: The call was refused; `reason` says why, `retry_after` when to come back.
            LimiterClosed: The limiter was closed.
            TypeError, ValueError: `timeout` is no number from 0, or `priority` no whole number.
        """
        permit = Permit(self._locked_gate, operation, priority, sheddable)
        wait = math.inf if timeout is None else patience(timeout)
        if seconds := permit._enter(partition, wait):
            permit._wait(partition, seconds)
        if sheddable:
            permit._expose()
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
            admitted: Called with the held permit, at this call's turn, by the thread that made room: let it be quick.
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
        return self._deadlines.admit(permit, partition, patience(timeout), (admitted, refused))
