"""A task's turn to enter: a future that any thread may settle."""

import asyncio
from collections.abc import Callable


class Turn:
    """What a task waits for, of the loop that runs when it is made."""

    __slots__ = ("_future", "_loop", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """End the wait, from any thread; RuntimeError if the loop is closed."""
        if asyncio._get_running_loop() is self._loop:
            self._end()
        else:
            self._loop.call_soon_threadsafe(self._end)

    async def wait(self, seconds: float, pause: float, look: Callable[[], object]) -> None:
        """Return when woken, or after so many seconds; meanwhile `look` after each pause."""
        until = self._loop.time() + seconds

        def ring() -> None:
            look()
            if self._loop.time() < until:
                self._timer = self._loop.call_at(min(until, self._loop.time() + pause), ring)
            else:
                self._end()

        self._timer = self._loop.call_later(min(seconds, pause), ring)
        try:
            await self._future
        finally:
            self._timer.cancel()

    def _end(self) -> None:
        if not self._future.done():
            self._future.set_result(None)
