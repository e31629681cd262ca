"""Where handlers of either front stop until a test lets them go."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress


class Gate:
    """Closed until it is opened; a test can wait until so many stand before it."""

    def __init__(self) -> None:
        self._came = threading.Semaphore(0)
        self._open: Future[None] = Future()

    def stop(self) -> None:
        """Stop here, in a thread."""
        self._came.release()
        self._open.result()

    def work(self, check: Callable[[], None]) -> None:
        """Stop here, in a thread, and check now and then whether to go on."""
        self._came.release()
        while True:
            check()
            with suppress(TimeoutError):
                return self._open.result(0.001)

    async def astop(self) -> None:
        """Stop here, in a task."""
        self._came.release()
        await asyncio.shield(asyncio.wrap_future(self._open))

    def meet(self, number: int = 1) -> None:
        """Wait until so many more have come."""
        for _ in range(number):
            self._came.acquire()

    def open(self) -> None:
        if not self._open.done():
            self._open.set_result(None)
