"""A backend of few slots: each call takes one for a while, over a connection that its caller keeps."""

import asyncio
from multiprocessing.connection import Connection

SLOTS, SERVICE = 10, 0.05
"""So many, and for how many seconds a call takes one."""


def backend(service: float, ready: Connection) -> None:
    """Serve for ever: each byte that comes is a call, and is sent back when a slot has served it."""
    asyncio.run(_serve(service, ready))


async def _serve(service: float, ready: Connection) -> None:
    slots = asyncio.Semaphore(SLOTS)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while call := await reader.read(1):
            async with slots:
                await asyncio.sleep(service)
            writer.write(call)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1000)
    ready.send(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


class Slots:
    """The slots of the backend, over connections that are kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def take(self) -> None:
        free = self._free.pop() if self._free else await asyncio.open_connection("127.0.0.1", self._port)
        free[1].write(b"?")
        await free[0].readexactly(1)
        self._free.append(free)
