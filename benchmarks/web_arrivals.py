"""Requests that come when they come: over HTTP/1.1, at random instants, whatever earlier ones wait for.

What a request takes counts from the instant at which it was meant to be sent. So a server that stands still for a while
is charged with all who came meanwhile.
"""

import asyncio
import random
import time
from collections.abc import Callable

_CONNECTIONS = 256


class Arrivals:
    """Sends requests to a port at a rate, for some seconds.

    Args:
        port: where, on this machine.
        rate: requests a second on average.
        user: returns who sends the next one.
    """

    def __init__(self, port: int, rate: float, user: Callable[[], str]) -> None:
        self._port, self._rate, self._user = port, rate, user
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._limit = asyncio.Semaphore(_CONNECTIONS)
        self.took: list[float] = []
        """Seconds of each answer."""
        self.failed = 0
        """Answers but 200."""

    async def run(self, seconds: float) -> None:
        """Send them, and wait for all answers."""
        at, end = time.perf_counter(), time.perf_counter() + seconds
        async with asyncio.TaskGroup() as under_way:
            while (at := at + random.expovariate(self._rate)) < end:
                if (ahead := at - time.perf_counter()) > 0:
                    await asyncio.sleep(ahead)
                under_way.create_task(self._request(at))
        for _, writer in self._free:
            writer.close()

    async def _request(self, at: float) -> None:
        async with self._limit:
            reader, writer = self._free.pop() if self._free else await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(f"GET /item HTTP/1.1\r\nHost: it\r\nx-user: {self._user()}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r", 1)[0]))
            self.took.append(time.perf_counter() - at)
            self.failed += not head.startswith(b"HTTP/1.1 200 ")
            self._free.append((reader, writer))
