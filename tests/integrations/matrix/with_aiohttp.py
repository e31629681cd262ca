"""The application of the matrix in aiohttp."""

from typing import Any

from aiohttp import web

from batchlimit.integrations.aiohttp import Limits, limited
from tests.integrations.faces.rules import RULES, endless, parts


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


@limited("search:{user}")
async def search(request: web.Request) -> web.Response:
    return web.Response(text="found")


@limited("item:{id}")
async def item(request: web.Request) -> web.Response:
    return web.Response(text=request.match_info["id"])


async def _sent(request: web.Request, source: Any) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    async for part in source:
        await response.write(part)
    return response


@limited("bytes:{user}")
async def stream(request: web.Request) -> web.StreamResponse:
    return await _sent(request, parts())


@limited("gone:{user}")
async def without_end(request: web.Request) -> web.StreamResponse:
    return await _sent(request, endless())


@limited("login:{user}", charge=[401])
async def login(request: web.Request) -> web.Response:
    if request.match_info["status"] == "401":
        raise web.HTTPUnauthorized
    return web.Response(status=int(request.match_info["status"]))


@limited("broken:{user}")
async def broken(request: web.Request) -> web.Response:
    raise ZeroDivisionError


@limited("handshake:{user}")
async def echo(request: web.Request) -> web.WebSocketResponse:
    websocket = web.WebSocketResponse()
    await websocket.prepare(request)
    async for message in websocket:
        await websocket.send_str(message.data)
    return websocket


def build(limiter: Any) -> web.Application:
    routes = {
        "/hello": hello,
        "/search": search,
        "/included/search": search,
        "/items/{id}": item,
        "/stream": stream,
        "/endless": without_end,
        "/login/{status}": login,
        "/broken": broken,
        "/ws": echo,
        **{f"/{name}": limited(name)(hello) for name in ("closed", "open", "local")},
    }
    app, mounted = web.Application(), web.Application()
    app.add_routes([web.get(path, handler) for path, handler in routes.items()])
    mounted.add_routes([web.get("/search", search)])
    app.add_subapp("/mounted", mounted)
    Limits(limiter, RULES, identify=_user).setup(app)
    return app


def _user(request: web.Request) -> dict[str, object]:
    return {"user": request.headers.get("x-user", "nobody")}
