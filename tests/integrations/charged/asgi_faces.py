"""The same routes in the frameworks of ASGI, each behind the rules in its own manner."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import BackgroundTasks, Depends, FastAPI
from fastapi import WebSocket as FastAPIWebSocket
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.responses import Response as FastAPIResponse
from litestar import Litestar, MediaType, Router, get, post, websocket
from litestar import WebSocket as LitestarWebSocket
from litestar.background_tasks import BackgroundTask as LitestarTask
from litestar.exceptions import WebSocketDisconnect
from litestar.response import Redirect, Stream
from litestar.response import Response as LitestarResponse
from litestar.static_files import create_static_files_router
from quart import Blueprint, Quart, redirect
from quart import websocket as quart_websocket
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from batchlimit.integrations import asgi, fastapi, litestar, quart, starlette
from tests.integrations.charged.behind import KEY, OFF_KEY, Behind
from tests.integrations.faces.rules import user_of

FILES = str(Path(__file__).parent)
"""What is served as static files."""


async def done() -> None:
    """Do a task in the background."""


async def parts() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"x" * 10


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1000
        await asyncio.sleep(0)  # so that the server learns of the client


def with_fastapi(behind: Behind) -> tuple[Any, Any]:
    app, below, limits = FastAPI(), FastAPI(), [Depends(fastapi.limited(KEY))]

    @app.get("/item", dependencies=limits)
    @app.post("/form", dependencies=limits)
    @app.get("/folder/", dependencies=limits)
    @app.get("/off", dependencies=[Depends(fastapi.limited(OFF_KEY))])
    @below.get("/item", dependencies=limits)
    def item() -> str:
        return "item"

    @app.get("/moved", dependencies=limits)
    def moved() -> RedirectResponse:
        return RedirectResponse("/item")

    @app.get("/same", dependencies=limits)
    def same() -> FastAPIResponse:
        return FastAPIResponse(status_code=304)

    @app.get("/broken", dependencies=limits)
    def broken() -> str:
        raise ZeroDivisionError

    @app.get("/later", dependencies=limits)
    def later(tasks: BackgroundTasks) -> str:
        tasks.add_task(done)
        return "later"

    @app.get("/stream", dependencies=limits)
    def stream() -> StreamingResponse:
        return StreamingResponse(parts())

    @app.get("/endless", dependencies=limits)
    def without_end() -> StreamingResponse:
        return StreamingResponse(endless())

    @app.websocket("/ws", dependencies=limits)
    async def echo(websocket: FastAPIWebSocket) -> None:
        await websocket.accept()
        async for text in websocket.iter_text():
            await websocket.send_text(text)

    app.mount("/below", below)
    app.mount("/static", StaticFiles(directory=FILES))
    made = behind.make_async
    held = fastapi.add_rate_limits(app, made, behind.rules, identify=user_of, messages=behind.messages)
    return app, held.statistics


async def item(request: Request) -> Response:
    return PlainTextResponse("item")


async def moved(request: Request) -> Response:
    return RedirectResponse("/item")


async def same(request: Request) -> Response:
    return Response(status_code=304)


async def broken(request: Request) -> Response:
    raise ZeroDivisionError


async def later(request: Request) -> Response:
    return PlainTextResponse("later", background=BackgroundTask(done))


async def stream(request: Request) -> Response:
    return StreamingResponse(parts())


async def without_end(request: Request) -> Response:
    return StreamingResponse(endless())


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


def _starlette() -> Starlette:
    of_route, off = [Middleware(asgi.RouteLimitMiddleware, KEY)], [Middleware(asgi.RouteLimitMiddleware, OFF_KEY)]
    views = {"/item": item, "/moved": moved, "/same": same, "/broken": broken, "/later": later, "/stream": stream}
    routes: list[BaseRoute] = [
        Route(path, view, middleware=of_route)
        for path, view in {**views, "/endless": without_end, "/folder/": item}.items()
    ]
    routes += [
        Route("/form", item, methods=["POST"], middleware=of_route),
        Route("/off", item, middleware=off),
        WebSocketRoute("/ws", echo, middleware=of_route),
        Mount("/below", Starlette(routes=[Route("/item", item, middleware=of_route)])),
        Mount("/static", StaticFiles(directory=FILES)),
    ]
    return Starlette(routes=routes)


def with_starlette(behind: Behind) -> tuple[Any, Any]:
    app, made = _starlette(), behind.make_async
    held = starlette.add_rate_limits(app, made, behind.rules, identify=user_of, messages=behind.messages)
    return app, held.statistics


def with_asgi(behind: Behind) -> tuple[Any, Any]:
    """Any ASGI application has the middleware of its own; here it is one of Starlette."""
    held = asgi.RateLimitMiddleware(
        _starlette(), behind.make_async, behind.rules, identify=user_of, messages=behind.messages
    )
    return held, held.statistics


def with_litestar(behind: Behind) -> tuple[Any, Any]:
    guards: Any = {"guards": [litestar.limited(KEY)]}
    text: Any = {"media_type": MediaType.TEXT, **guards}

    async def item() -> str:
        return "item"

    @get("/moved", **guards)
    async def moved() -> Redirect:
        return Redirect("/item")

    @get("/same", status_code=304, **guards)
    async def same() -> None:
        return None

    @get("/broken", **guards)
    async def broken() -> str:
        raise ZeroDivisionError

    @get("/later", **text)
    async def later() -> LitestarResponse[str]:
        return LitestarResponse("later", background=LitestarTask(done))

    @get("/stream", **guards)
    async def stream() -> Stream:
        return Stream(parts())

    @get("/endless", **guards)
    async def without_end() -> Stream:
        return Stream(endless())

    @websocket("/ws", middleware=[litestar.route_limit(KEY)])
    async def echo(socket: LitestarWebSocket[Any, Any, Any]) -> None:
        await socket.accept()
        try:
            while True:
                await socket.send_text(await socket.receive_text())
        except WebSocketDisconnect:
            return

    handlers: list[Any] = [moved, same, broken, later, stream, without_end, echo]
    handlers += [get(path, **text)(item) for path in ("/item", "/folder/")]
    handlers += [post("/form", **text)(item), get("/off", guards=[litestar.limited(OFF_KEY)])(item)]
    handlers += [Router("/below", route_handlers=[get("/item", **text)(item)])]
    handlers += [create_static_files_router("/static", [FILES])]
    app, made = Litestar(handlers, openapi_config=None, logging_config=None), behind.make_async
    held = litestar.add_rate_limits(app, made, behind.rules, identify=user_of, messages=behind.messages)
    return app, held.statistics


def with_quart(behind: Behind) -> tuple[Any, Any]:
    app, below = (
        Quart(__name__, static_folder=FILES, static_url_path="/static"),
        Blueprint("below", __name__, url_prefix="/below"),
    )
    limited = quart.limited(KEY)

    async def item() -> Any:
        return "item"

    async def moved() -> Any:
        return redirect("/item")

    async def same() -> Any:
        return "", 304

    async def broken() -> Any:
        raise ZeroDivisionError

    async def later() -> Any:
        app.add_background_task(done)
        return "later"

    async def stream() -> Any:
        return parts()

    async def without_end() -> Any:
        return endless()

    @app.websocket("/ws")
    @limited
    async def echo() -> None:
        await quart_websocket.accept()
        while True:
            await quart_websocket.send(await quart_websocket.receive())

    for view in (item, moved, same, broken, later, stream):
        app.add_url_rule(f"/{view.__name__}", view.__name__, limited(view))
    app.add_url_rule("/endless", "endless", limited(without_end))
    app.add_url_rule("/folder/", "folder", limited(item))
    app.add_url_rule("/form", "form", limited(item), methods=["POST"])
    app.add_url_rule("/off", "off", quart.limited(OFF_KEY)(item))
    below.add_url_rule("/item", "item", limited(item))
    app.register_blueprint(below)
    made = behind.make_async
    held = quart.Limits(made, behind.rules, app, identify=user_of, messages=behind.messages)
    return app, lambda: held.statistics(app)
