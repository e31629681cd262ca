"""The limiter of an application: opened when the application starts, closed when it has stopped, and made anew then."""

import asyncio
from collections.abc import Callable, Collection

from batchlimit import AsyncRateLimiter
from batchlimit.events import tell
from batchlimit.integrations.asgi.messages import ASGIApp, Message, Receive, Scope, Send
from batchlimit.integrations.source import LimiterMaker

LimiterSource = AsyncRateLimiter | str | Callable[[], AsyncRateLimiter]
_PATIENCE_S = 10.0
_STOPPED = ("lifespan.shutdown.complete", "lifespan.shutdown.failed", "lifespan.startup.failed")


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

    async def lifespan(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the lifespan through: the limiter is there before the application starts, and after it has stopped."""

        async def starting() -> Message:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.open()
            return message

        async def stopping(message: Message) -> None:
            if message["type"] in _STOPPED:
                await self._close_quietly()
            await send(message)

        try:
            await app(scope, starting, stopping)
        finally:
            await self._close_quietly()

    async def _close_quietly(self) -> None:
        try:
            if self._settling:
                await asyncio.wait(self._settling, timeout=_PATIENCE_S)
            await self.close()
        except Exception as error:  # noqa: BLE001  the server ends all the same
            tell("limiter.not_closed", "the limiter was not closed: %s", error, error=error)
