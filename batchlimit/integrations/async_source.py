"""The limiter of an application on one event loop: made when that starts, closed when it has stopped, and made anew."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from batchlimit import AsyncRateLimiter
from batchlimit.events import log_event
from batchlimit.integrations.source import LimiterMaker

LimiterSource = AsyncRateLimiter | str | Callable[[], AsyncRateLimiter]
_PATIENCE_S = 10.0


class LimiterHome:
    """Makes the limiter on the application's event loop, and closes it there if it made it.

    Args:
        make: makes the limiter, or takes that of its owner, which is never closed here.
    """

    def __init__(self, make: LimiterMaker[AsyncRateLimiter]) -> None:
        self._make = make
        self._settling: set[asyncio.Task[None]] = set()
        self._limiter = make() if make.is_early else None  # it connects at the first call

    def __repr__(self) -> str:
        return f"<LimiterHome of {self._limiter or 'no limiter yet'}>"

    def made(self) -> AsyncRateLimiter | None:
        """Return the limiter, if there is one."""
        return self._limiter

    def limiter(self) -> AsyncRateLimiter:
        """Return the limiter; make it, if the server told of no start of the application."""
        return self._limiter or self.open()

    def open(self) -> AsyncRateLimiter:
        """Make the limiter, unless there is one."""
        if self._limiter is None:
            self._limiter = self._make()
        return self._limiter

    def settle(self, rest: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run what is left of a charge in a task that nobody cancels with the request; None: the loop is closed."""
        try:
            task = asyncio.get_running_loop().create_task(rest)
        except RuntimeError:  # the loop was closed before the request had ended
            rest.close()
            return None
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return task

    async def close(self) -> None:
        """Close a limiter that was made here; the next start makes another one.

        It is closed after what is being settled, or after ten seconds of that.
        """
        if self._settling:
            await asyncio.wait(self._settling, timeout=_PATIENCE_S)
        if self._limiter is not None and not self._make.is_given:
            limiter, self._limiter = self._limiter, None
            await limiter.close()

    async def close_quietly(self) -> None:
        """Close as `close` does; an error goes to the log."""
        try:
            await self.close()
        except Exception as error:  # noqa: BLE001  the server ends all the same
            log_event("limiter.not_closed", "the limiter was not closed: %s", error, error=error)
