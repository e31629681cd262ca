"""What a real hypercorn does otherwise than other ASGI servers."""

import asyncio
import socket
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config

from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.enforcement import Response
from batchlimit.rules import Rule
from tests.integrations.asgi import lifespan, part, start


async def hello(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return

    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    gone = asyncio.create_task(until_gone())
    await send(start())
    await send(part(b"hello"))
    await gone


async def answered(app: Any, request: bytes) -> bytes:
    """All that a server of one request answers."""
    stop, config = asyncio.Event(), Config()
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    config.bind = [f"fd://{listener.detach()}"]  # it is the server's to close
    server = asyncio.create_task(serve(app, config, shutdown_trigger=stop.wait))
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    stop.set()
    await server
    return answer


def test_a_client_that_asks_to_close_the_connection_pays_for_a_complete_response() -> None:
    responses: list[Response] = []

    def charge(response: Response) -> bool:
        responses.append(response)
        return response.complete

    app = RateLimitMiddleware(hello, "memory://", [Rule("all", "9/hour", key="all", charge=charge)], checks=False)
    answer = asyncio.run(answered(app, b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"))
    assert b"hello" in answer
    assert [(each.status, each.complete, each.sent) for each in responses] == [(200, True, 5)]
