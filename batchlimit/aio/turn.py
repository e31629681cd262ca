"""A task's turn to enter: a future that any thread may settle."""

import asyncio
from collections.abc import Callable

from batchlimit.aio.waits import Waits, waits_of


class Turn:
    """What a task waits for, of the loop that runs when it is made."""

    __slots__ = ("_future", "_loop", "_waits")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._waits: Waits = waits_of(self._loop)

    def wake(self) -> None:
        """End the wait, from any thread; RuntimeError if the loop is closed."""
        if asyncio._get_running_loop() is self._loop:
            self._waits.end(self)
        else:
            self._loop.call_soon_threadsafe(self._waits.end, self)

    async def wait(self, seconds: float, pause: Callable[[], float], look: Callable[[], object]) -> None:
        """Return when woken, or after so many seconds and up to a 64th of that; meanwhile `look` after each pause."""
        waits = self._waits
        slot = waits.until(seconds)
        slot[self] = None
        waits.watch(look, pause)
        try:
            await self._future
        finally:
            slot.pop(self, None)
            waits.unwatch(look)

    def settle(self) -> None:
        """End the wait, in its loop; a second time it changes nothing."""
        if not self._future.done():
            self._future.set_result(None)
