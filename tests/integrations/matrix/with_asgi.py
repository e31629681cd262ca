"""The application of the matrix in plain ASGI."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from batchlimit.integrations.asgi import RateLimitMiddleware, RouteLimitMiddleware
from tests.integrations.asgi import echo, lifespan, part, start
from tests.integrations.faces.rules import MESSAGES, RULES, endless, parts, user_of

Handler = Callable[[Any, Any, Any], Awaitable[None]]


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send(start())
    await send(part(b"hello"))


async def login(scope: Any, receive: Any, send: Any) -> None:
    await send(start(int(scope["path_params"]["last"])))
    await send(part(b""))


async def stream(scope: Any, receive: Any, send: Any) -> None:
    await send(start())
    async for each in parts():
        await send(part(each, more=True))
    await send(part(b""))


async def without_end(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    gone = asyncio.ensure_future(receive())
    await send(start())
    async for each in endless():
        if gone.done():
            return
        await send(part(each, more=True))


async def broken(scope: Any, receive: Any, send: Any) -> None:
    raise ZeroDivisionError


async def websocket(scope: Any, receive: Any, send: Any) -> None:
    await echo(receive, send)


def limited(handler: Handler, key: str, **options: Any) -> Any:
    return RouteLimitMiddleware(handler, key, **options)


def build(limiter: Any, **options: Any) -> RateLimitMiddleware:
    search = limited(hello, "search:{user}")
    routes: dict[str, Any] = {
        "/hello": hello,
        "/search": search,
        "/included/search": search,
        "/mounted/search": search,
        "/items": limited(hello, "item:{id}"),
        "/stream": limited(stream, "bytes:{user}"),
        "/endless": limited(without_end, "gone:{user}"),
        "/login": limited(login, "login:{user}", charge=[401]),
        "/broken": limited(broken, "broken:{user}"),
        "/chat": websocket,
        "/ws": limited(websocket, "handshake:{user}"),
        **{f"/{name}": limited(hello, name) for name in ("closed", "open", "local")},
    }

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        above, _, last = scope["path"].rpartition("/")
        route = routes.get(scope["path"]) or routes[above]
        await route({**scope, "path_params": {"id": last, "last": last}}, receive, send)

    return RateLimitMiddleware(app, limiter, RULES, identify=user_of, messages=MESSAGES, **options)
