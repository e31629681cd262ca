"""AsyncKeyedConcurrencyLimiter: as many calls at once as each key may have, for asyncio."""

import math
from collections.abc import Iterable

from batchlimit.base.unique import AsyncClosing
from batchlimit.base.waiting import patience
from batchlimit.concurrency.async_permit import AsyncPermit
from batchlimit.concurrency.keyed.base_limiter import BaseKeyedLimiter
from batchlimit.concurrency.keyed.permits import AcquireOrder, AsyncPermits


class AsyncKeyedConcurrencyLimiter(AsyncClosing, BaseKeyedLimiter):
    """Limits how many calls of each key are under way at once: of a repository, a user, a tenant.

    One limiter serves the tasks of any event loops, also of several threads. It limits this process alone.

    Args:
        limits: A dict from keys and glob patterns to limits: a whole number of calls, or Keyed, which adds a queue or a
            law. A key counts by the first entry that names it: the key itself, then the patterns in their order, then
            "*".
        classify: Returns what an exception that ended a call tells about the load (default: `classify`).
        max_keys: Keys to keep in memory (default 10,000). Keys with a call under way stay in any case. A key that
            leaves forgets what its law has learnt.
        idle_after: After so many seconds (default 60) a key without calls leaves the memory when other keys come.
        clock: Returns ns and never runs backwards (default `time.monotonic_ns`).

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
            key: What is limited, such as "repo:42".
            timeout: How long to wait at most (seconds). None, the default: as long as the queue lets it; 0: not at all.
            operation: What kind of call it is, for laws that hold unlike kinds apart (default "").
            priority: Callers of high priority are served first in the queue (a whole number, default 0).

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
            keys: What is limited, each key once. The limits say in which order keys are acquired: put those of which
                few calls are under way, such as users, before the process as a whole.
            timeout: How long to wait at most (seconds). None, the default: as long as the queues let it; 0: not at all.
            operation: What kind of call it is, for laws that hold unlike kinds apart (default "").
            priority: Callers of high priority are served first in the queue (a whole number, default 0).

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
