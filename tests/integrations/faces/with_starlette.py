"""The application of the matrix in Starlette."""

from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, Router, WebSocketRoute
from starlette.websockets import WebSocket

from batchlimit.integrations.starlette import RouteLimit, RouteLimitMiddleware, add_rate_limits, charge_request
from tests.integrations.faces.rules import RULES, endless, parts, user_of


def limited(key: str, **options: Any) -> list[Middleware]:
    return [Middleware(RouteLimitMiddleware, key, **options)]


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


def search(request: Request) -> Response:  # in a thread
    return PlainTextResponse("found")


async def told(request: Request) -> Response:
    await charge_request(request, RouteLimit("search:{user}"), {"user": request.headers.get("x-told", "told")})
    return PlainTextResponse("found")


async def item(request: Request) -> Response:
    await charge_request(request, RouteLimit("item:{id}"))
    return PlainTextResponse(request.path_params["id"])


async def stream(request: Request) -> Response:
    return StreamingResponse(parts(), media_type="text/plain")


async def without_end(request: Request) -> Response:
    return StreamingResponse(endless(), media_type="text/plain")


async def login(request: Request) -> Response:
    return Response(status_code=request.path_params["status"])


async def broken(request: Request) -> Response:
    raise ZeroDivisionError


async def echo(websocket: WebSocket) -> None:
    await charge_request(websocket, RouteLimit("handshake:{user}"))
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


def build(limiter: Any, *, typo: bool = False, **options: Any) -> Starlette:
    of_search = limited("search:{user}")
    mounted = Starlette(routes=[Route("/search", hello, middleware=of_search)])
    app = Starlette(
        routes=[
            Route("/hello", hello),
            Route("/search", search, middleware=of_search),
            Route("/told", told),
            Route("/items/{id}", item),
            Route("/stream", stream, middleware=limited("bytes:{user}")),
            Route("/endless", without_end, middleware=limited("gone:{user}")),
            Route("/login/{status:int}", login, middleware=limited("login:{user}", charge=[401])),
            Route("/broken", broken, middleware=limited("broken:{user}")),
            Route("/closed", hello, middleware=limited("closed")),
            Route("/open", hello, middleware=limited("open")),
            Route("/local", hello, middleware=limited("local")),
            WebSocketRoute("/ws", echo),
            Mount("/included", Router([Route("/search", hello)]), middleware=of_search),
            Mount("/mounted", mounted),
            *([Route("/typo", hello, middleware=limited("serch:{user}"))] if typo else []),
        ]
    )
    add_rate_limits(app, limiter, RULES, identify=user_of, **options)
    return app
