"""AsyncSharedConcurrencyLimiter: as many calls at once as each key may have in the whole fleet, for asyncio."""

import asyncio
from types import TracebackType
from typing import Self

from batchlimit.shared.async_permit import AsyncSharedPermit
from batchlimit.shared.base_limiter import BaseSharedLimiter, checked
from batchlimit.waiting import patience


class AsyncSharedConcurrencyLimiter(BaseSharedLimiter):
    """Limits how many calls of each key are under way at once, over all processes that share a store, for asyncio.

    As SharedConcurrencyLimiter, with the same thread for the store: an event loop that is busy for seconds keeps its
    permits. One limiter serves the tasks of any event loops.

    Args:
        store: A RedisStore or a MemoryStore; `from_url` makes one.
        limits: A dict from keys and glob patterns to limits: a whole number of permits, or Shared, which adds a queue
            and a lease. A key counts by the first entry that names it: the key itself, then the patterns in their
            order, then "*". While instances name different limits, the lowest counts.
        weight: The part of this instance while instances compete (whole number, default 1).
        deadline: How long the store may take to answer (seconds, default 0.5; a quarter of the shortest lease at most).
        on_failure: What callers get while the store is away: "closed" (default) raises StoreUnavailable, "open" admits,
            `FailurePolicy.local(instances=8)` admits an eighth of the limit. Or a dict from keys and patterns to those.

    Raises:
        TypeError, ValueError: An argument cannot work.

    Example:
        >>> import asyncio
        >>> from batchlimit.shared import AsyncSharedConcurrencyLimiter
        >>> async def main() -> int:
        ...     async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"export:*": 10}) as limiter:
        ...         async with limiter.acquire("export:42"):
        ...             return limiter.statistics().keys["export:42"].in_flight
        >>> asyncio.run(main())
        1
    """

    def acquire(
        self, key: str, *, timeout: float | None = None, priority: int = 0, cancel: bool = True
    ) -> AsyncSharedPermit:
        """Return a permit to be awaited, or to be the context of an `async with` block: the task enters there.

        Args:
            key: What is limited, such as "export:42".
            timeout: How long to wait at most (seconds). None, the default: as long as the queue lets it; 0: for the
                store's answer alone, not for a release.
            priority: Of the callers that wait in this process, those of higher priority are served first (whole
                number, default 0). One place of eight goes to who has waited longest.
            cancel: True, the default: a block whose permit is lost is cancelled, and ends in PermitLost. False: the
                block goes on, and is to look at `lost` or to `check`.

        Returns:
            The permit. It raises ConcurrencyLimited, StoreUnavailable or LimiterClosed where the task enters.

        Raises:
            TypeError: `timeout` is no number, or `priority` no whole number.
            ValueError: `timeout` is below 0.
        """
        return AsyncSharedPermit(self._engine, key, patience(timeout), checked(priority), cancel)

    async def close(self) -> None:
        """Let no call enter any more, and give back what is free; waiters get LimiterClosed, calls under way go on."""
        self._end.detach()
        await asyncio.to_thread(self._engine.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
