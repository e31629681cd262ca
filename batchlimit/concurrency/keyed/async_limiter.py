"""AsyncKeyedConcurrencyLimiter: as many calls at once as each key may have, for asyncio."""

import math
from collections.abc import Iterable

from batchlimit.base.unique import AsyncClosing
from batchlimit.base.waiting import patience
from batchlimit.concurrency.async_permit import AsyncPermit
from batchlimit.concurrency.keyed.limiter import BaseKeyedLimiter
from batchlimit.concurrency.keyed.permits import AcquireOrder, AsyncPermits


class AsyncKeyedConcurrencyLimiter(AsyncClosing, BaseKeyedLimiter):
    """Limits how many calls of each key are under way at once: of a repository, a user, a tenant.

    One limiter serves the tasks of any event loops, also of several threads. It limits this process alone.

    Args:
        limits, classify, max_keys, idle_after, clock: As of KeyedConcurrencyLimiter, with the same defaults.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: There are no limits, a limit is below 1, or a number is out of its range.

    Example:
        >>> import asyncio
        >>> from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter
        >>> async def main() -> int:
        ...     async with AsyncKeyedConcurrencyLimiter({"repo:*": 20}) as limiter:
        ...         async with limiter.acquire("repo:42"):
        ...             return limiter.statistics().patterns["repo:*"].in_flight
        >>> asyncio.run(main())
        1
    """

    def acquire(self, key: str, *, timeout: float | None = None, operation: str = "", priority: int = 0) -> AsyncPermit:
        """Return a permit to be awaited, or to be the context of an `async with` block: the task enters there.

        Args:
            key, timeout, operation, priority: As of `KeyedConcurrencyLimiter.acquire`, with the same defaults.

        Returns:
            The permit. It raises ConcurrencyLimited or LimiterClosed where the task enters.

        Raises:
            LimiterClosed: The limiter was closed.
            TypeError: The key is no str, `timeout` no number, or `priority` no whole number where the call has to wait.
            ValueError: The key has no limit or is empty, or `timeout` is below 0.
        """
        gate = self._by_key.get(key) or self._gates.find(key)
        permit = AsyncPermit(gate, operation, priority, False)
        permit._partition, permit._timeout = "", math.inf if timeout is None else patience(timeout)
        return permit

    def acquire_all(
        self, keys: Iterable[str], *, timeout: float | None = None, operation: str = "", priority: int = 0
    ) -> AsyncPermits:
        """Return permits of several keys, all of them or none, to be awaited or entered with `async with`.

        A task waits for a key that has no room while it holds nothing, so it keeps no place from others. If it was
        turned away three times after that, it waits with what it holds. Tasks never wait for each other in a circle.

        Args:
            keys, timeout, operation, priority: As of `KeyedConcurrencyLimiter.acquire_all`, with the same defaults.

        Returns:
            The permits. They raise ConcurrencyLimited or LimiterClosed where the task enters; `key` of the error says
            which key had no room.

        Raises:
            TypeError, ValueError: As `acquire`; or a key is named twice, or there is none.
        """
        order, seconds = AcquireOrder(self._order(keys)), patience(timeout)
        return AsyncPermits(self._gates, order, seconds, lambda gate: AsyncPermit(gate, operation, priority, False))

    async def close(self) -> None:
        """Let no call enter any more; waiters get LimiterClosed, calls under way go on."""
        self._gates.close()
