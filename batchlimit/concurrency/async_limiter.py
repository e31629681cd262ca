"""AsyncConcurrencyLimiter, and its permits: permission for one call to be under way in a task."""

import asyncio
import math
from collections.abc import Awaitable, Generator
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import Any, Self, cast

from batchlimit.base.steps import drive
from batchlimit.base.waiting import patience
from batchlimit.concurrency.classification import outcome_of
from batchlimit.concurrency.limiter import BaseLimiter, TaskLimiter
from batchlimit.concurrency.permit import ASKED, HELD, OVER, SUCCESS, WAITING, BasePermit
from batchlimit.concurrency.queue import GateWaiter
from batchlimit.concurrency.waits import BlockTask, TaskWakeup

_LEFT: asyncio.Future[None] = asyncio.Future(loop=cast(Any, SimpleNamespace(get_debug=lambda: False)))
"""What leaving a block awaits: one future for all, which is done, of no loop. A coroutine for each takes 60 ns more."""
_LEFT.set_result(None)


class AsyncPermit(BasePermit):
    """Permission for one call to be under way in a task: the context of an `async with` block, or to be awaited.

    The task enters at `async with` or `await`, no sooner. If the permit was awaited, `with` and `async with` complete
    it alike. The end of the block completes it, and so do `success`, `drop` and `ignore`, as those of Permit.

    Attributes:
        operation, priority, start_ns: As of Permit.

    Raises:
        ConcurrencyLimited: The call was refused where it would enter; `reason` says why.
        LimiterClosed: The limiter was closed.
        RuntimeError: The permit was entered twice, or completed before anybody entered it.

    Example:
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> async with AsyncConcurrencyLimiter() as limiter:
        ...     permit = await limiter.acquire()
        ...     permit.success()
        ...     limiter.statistics().succeeded
        1
    """

    __slots__ = ("_block", "_partition", "_timeout")

    # How it is to be entered: set by `acquire`, for an __init__ of our own around the other takes 100 ns.
    _partition: str
    _timeout: float
    _block: BlockTask  # set in a block that is sheddable

    def __await__(self) -> Generator[Any, None, Self]:
        if self._state is not ASKED:
            raise RuntimeError(f"{self!r} was awaited before")
        if seconds := self._enter(self._partition, self._timeout):
            yield from self._wait(self._partition, seconds).__await__()
        return self

    async def __aenter__(self) -> Self:
        if self._state is ASKED:
            if seconds := self._enter(self._partition, self._timeout):
                await self._wait(self._partition, seconds)
            if not self._sheddable:
                return self
        return self.__enter__()

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Awaitable[None]:
        if self._sheddable and self._block.is_cancelled and self._block.ends_by(error):
            self.ignore()  # the cancellation by shedding becomes a refusal
            raise self._locked_gate.refusal(self._place, "shed") from error
        self._leave(SUCCESS if error is None else outcome_of(error, self._locked_gate.classify))
        return _LEFT

    def __enter__(self) -> Self:
        if self._state is ASKED:
            raise RuntimeError(f"{self!r} was not awaited: write `async with`")
        if self._state is OVER:
            raise RuntimeError(f"{self!r} was completed before")
        if self._state is WAITING:
            raise RuntimeError(f"{self!r} is waited for by another task")
        if self._sheddable:
            self._block = BlockTask()
            self._expose()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__aexit__(kind, error, trace)

    async def _wait(self, partition: str, seconds: float) -> None:
        """Wait in the queue, and return with the permit held."""
        locked = self._locked_gate
        wakeup = TaskWakeup() if locked.time is None else locked.time.task_wakeup()
        wait = partial(wakeup.wait, seconds, locked.pause, locked.catch_up)
        self._state = WAITING
        await drive(locked.waiting(self, GateWaiter(wakeup.waker(), self.priority), partition, wait))

    # To be shed

    def _give_up(self) -> None:
        """Cancel the task in the block of this permit, from any thread; RuntimeError if its loop is closed."""
        self._block.loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._state is HELD:
            self._block.cancel(f"{self!r} was shed")


class AsyncConcurrencyLimiter(TaskLimiter, BaseLimiter):
    """Limits how many calls are under way at once, to the number that its law finds best.

    One limiter serves the tasks of any event loops, also of several threads. It is bound to no loop: make it when and
    where you like. Any task of any thread may complete a permit. If a loop was closed, the places that its tasks waited
    for go to others. If a loop was stopped and never runs again, its tasks keep them.

    Args:
        law, partitions, queue, classify, bypass, watchers, every, shedding, clock: As of ConcurrencyLimiter, with the
            same defaults.

    Raises:
        TypeError, ValueError: As ConcurrencyLimiter.

    Example:
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> from batchlimit.laws import Fixed
        >>> async with AsyncConcurrencyLimiter(Fixed(10)) as limiter:
        ...     async with limiter.acquire():
        ...         limiter.statistics().in_flight
        1
    """

    def acquire(
        self,
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> AsyncPermit:
        """Return a permit to be awaited, or to be the context of an `async with` block: the task enters there.

        Args:
            partition, timeout, operation, priority: As of `ConcurrencyLimiter.acquire`, with the same defaults.
            sheddable: True if the task may be cancelled in its block (default False). The block then ends in
                ConcurrencyLimited. The task that entered such a block has to leave it, as with asyncio.timeout.

        Returns:
            The permit. It raises ConcurrencyLimited or LimiterClosed where the task enters.

        Raises:
            TypeError, ValueError: As `ConcurrencyLimiter.acquire`.
        """
        permit = AsyncPermit(self._locked_gate, operation, priority, sheddable)
        permit._partition, permit._timeout = partition, math.inf if timeout is None else patience(timeout)
        return permit
