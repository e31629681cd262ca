"""The limiter of an application on one event loop: made when that starts, closed when it has stopped, and made anew."""

import asyncio
from collections.abc import Callable, Collection

from batchlimit import AsyncRateLimiter
from batchlimit.events import tell
from batchlimit.integrations.source import LimiterMaker

LimiterSource = AsyncRateLimiter | str | Callable[[], AsyncRateLimiter]
_PATIENCE_S = 10.0


class LimiterHome:
    """Makes the limiter on the application's event loop, and closes it there if it made it.

    Args:
        make: makes the limiter, or takes that of its owner, which is never closed here.
        settling: tasks that the limiter is closed after, or that have had ten seconds then (default none).
    """

    def __init__(self, make: LimiterMaker[AsyncRateLimiter], settling: Collection[asyncio.Task[None]] = ()) -> None:
        self._make, self._settling = make, settling
        self._limiter = make() if make.is_early else None  # it connects at the first call

    def __repr__(self) -> str:
        return f"<LimiterHome of {self._limiter or 'no limiter yet'}>"

    def limiter(self) -> AsyncRateLimiter:
        """Return the limiter; make it, if the server told of no start of the application."""
        return self._limiter or self.open()

    def open(self) -> AsyncRateLimiter:
        """Make the limiter, unless there is one."""
        if self._limiter is None:
            self._limiter = self._make()
        return self._limiter

    async def close(self) -> None:
        """Close a limiter that was made here; the next start makes another one."""
        if self._limiter is not None and not self._make.is_given:
            limiter, self._limiter = self._limiter, None
            await limiter.close()

    async def close_quietly(self) -> None:
        """Close after what is being settled; what goes wrong is told in the log."""
        try:
            if self._settling:
                await asyncio.wait(self._settling, timeout=_PATIENCE_S)
            await self.close()
        except Exception as error:  # noqa: BLE001  the server ends all the same
            tell("limiter.not_closed", "the limiter was not closed: %s", error, error=error)
