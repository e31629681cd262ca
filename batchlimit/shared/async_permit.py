"""AsyncSharedPermit: leave for one call to be under way in the fleet, held by a task."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Self

from batchlimit.errors import PermitLost
from batchlimit.shared.permit import BaseSharedPermit, Issuer

_SECOND = 1_000_000_000
_SOONEST = 0.001
"""Seconds until the lease is looked at again, at least: timers and clocks do not agree to the last digit."""


class AsyncSharedPermit(BaseSharedPermit):
    """Leave for one call to be under way in the fleet: the context of an `async with` block, or to be awaited.

    The task enters at `async with` or `await`, no sooner. The end of the block releases the permit, and so does
    `release`. If the permit is lost in an `async with` block, its task is cancelled there, and the block ends in
    PermitLost, unless `cancel=False` of `acquire` says otherwise. The task that entered such a block has to leave it,
    as with asyncio.timeout.

    Attributes:
        key: The key.

    Raises:
        ConcurrencyLimited: The call was refused where it would enter; `reason` says why.
        LimiterClosed: The limiter was closed.
        StoreUnavailable: The store is away, and `on_failure` is "closed".

    Example:
        >>> import asyncio
        >>> from batchlimit.shared import AsyncSharedConcurrencyLimiter
        >>> async def main() -> bool:
        ...     async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"gpu": 64}) as limiter:
        ...         async with limiter.acquire("gpu") as permit:
        ...             return permit.lost
        >>> asyncio.run(main())
        False
    """

    __slots__ = ("_cancelled", "_cancels", "_enter", "_loop", "_may_cancel", "_task", "_timer")

    _loop: asyncio.AbstractEventLoop

    def __init__(
        self, issuer: Issuer, key: str, enter: "Callable[[AsyncSharedPermit], Awaitable[None]]", may_cancel: bool
    ) -> None:
        super().__init__(issuer, key)
        self._enter, self._may_cancel = enter, may_cancel
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled, self._cancels = False, 0

    def __await__(self) -> Generator[Any, None, Self]:
        return self._entered().__await__()

    async def _entered(self) -> Self:
        if self._place is not None:
            raise RuntimeError(f"{self!r} was awaited before")
        await self._enter(self)
        return self

    async def __aenter__(self) -> Self:
        if self._place is None:
            await self._enter(self)
        if self._is_lost is not None:
            raise RuntimeError(f"{self!r} was released before")
        if self._may_cancel:
            self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disarm()
        self.release()
        if self._cancelled and self._task is asyncio.current_task() and self._task is not None:
            others = self._task.uncancel() > self._cancels
            if isinstance(error, asyncio.CancelledError) and not others:
                raise PermitLost(self.key, self.token) from error

    def _arm(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancels = self._task.cancelling() if self._task else 0
        self._held.give_up = self._hurry
        self._look()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hurry(self) -> None:
        """Look now, from any thread; if the loop is closed, nobody is in the block any more."""
        try:
            self._loop.call_soon_threadsafe(self._look)
        except RuntimeError:
            pass

    def _look(self) -> None:
        """Cancel the task if the permit is lost, else look again when the lease would be over."""
        self._disarm()
        if self._is_lost is not None or self._cancelled:
            return
        now, until = self._issuer.clock(), self._held.lease.until
        if not self._held.is_lost(now):
            if until != float("inf"):
                self._timer = self._loop.call_later(max(_SOONEST, (until - now) / _SECOND), self._look)
        elif self._task is not None:
            self._cancelled = self._task.cancel(f"{self!r}")
