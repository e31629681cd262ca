"""AsyncConcurrencyLimiter: the concurrency limiter for asyncio."""

import math

from batchlimit.base.unique import AsyncClosing
from batchlimit.base.waiting import patience
from batchlimit.concurrency.async_permit import AsyncPermit
from batchlimit.concurrency.limiter import BaseLimiter

_FOREVER = math.inf


class AsyncConcurrencyLimiter(AsyncClosing, BaseLimiter):
    """Limits how many calls are under way at once, to the number that its law finds best.

    One limiter serves the tasks of any event loops, also of several threads. It is bound to no loop: make it when and
    where you like. Any task of any thread may complete a permit. If a loop was closed, the places that its tasks waited
    for go to others. If a loop was stopped and never runs again, its tasks keep them.

    Args:
        law, partitions, queue, classify, bypass, watchers, every, shedding, clock: As of ConcurrencyLimiter, with the
            same defaults.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: `every` is not above 0, or `shedding` or `Gitaly` has no watchers.

    Example:
        >>> import asyncio
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> from batchlimit.laws import Fixed
        >>> async def main() -> int:
        ...     async with AsyncConcurrencyLimiter(Fixed(10)) as limiter:
        ...         async with limiter.acquire():
        ...             return limiter.statistics().in_flight
        >>> asyncio.run(main())
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
            TypeError: `timeout` is no number, or `priority` of a call that is sheddable or has to wait is no whole
                number.
            ValueError: `timeout` is below 0.
        """
        permit = AsyncPermit(self._locked_gate, operation, priority, sheddable)
        permit._partition, permit._timeout = partition, _FOREVER if timeout is None else patience(timeout)
        return permit

    async def close(self) -> None:
        """Let no call enter any more; waiters get LimiterClosed, calls under way go on."""
        self._rounds.stop(0)  # a watcher that hangs is not waited for
        self._locked_gate.close()
