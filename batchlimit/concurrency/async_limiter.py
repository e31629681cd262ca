"""AsyncConcurrencyLimiter: the asyncio front of the concurrency limiter."""

import math
from types import TracebackType
from typing import Self

from batchlimit.concurrency.async_permit import AsyncPermit
from batchlimit.concurrency.base_limiter import BaseLimiter
from batchlimit.waiting import patience

_FOREVER = math.inf


class AsyncConcurrencyLimiter(BaseLimiter):
    """Limits how many calls are under way at once, to what its law finds is best.

    One limiter serves the tasks of any event loops, of several threads too. It is not bound to a loop: make it when and
    where you like. A permit may be completed by any task of any thread. A loop that was closed passes on what its tasks
    waited for; one that was stopped and is never run again keeps it.

    `law` sets the limit (None: Knee()), and belongs to this limiter alone. `partitions` guarantees parts of it by name.
    Who finds no room waits in `queue`, if there is one. `classify` says of an exception that ends a call what it tells
    about the load; `bypass(operation, partition)` says which calls the limit is not for. `watchers` look at the machine
    once in `every` seconds, in a thread, and the law hears of what they see; if it persists, `shedding` ends calls that
    are under way. `clock` gives ns and must never run backwards.
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
        """Return a permit to be awaited, or to be the context of an `async with` block: there the task enters.

        At once, or when it is its turn; ConcurrencyLimited says why not, LimiterClosed. It waits for `timeout` seconds
        at most (None: as long as the queue lets it, 0: not at all), and never longer than the queue lets it.
        `operation` is what kind of call it is, for laws that hold unlike kinds apart. The task in a block that is
        `sheddable` may be cancelled there, those of low `priority` first, and the block then ends in
        ConcurrencyLimited; see Shedding. The task that entered such a block has to leave it, as with asyncio.timeout.
        """
        permit = AsyncPermit(self._locked_gate, operation, priority, sheddable)
        permit._partition, permit._timeout = partition, _FOREVER if timeout is None else patience(timeout)
        return permit

    async def close(self) -> None:
        """Let nobody enter any more; who waits is sent away with LimiterClosed, who is under way goes on."""
        self._calibration.stop(0)  # a watcher that hangs is not waited for
        self._locked_gate.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
