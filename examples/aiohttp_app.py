"""A shop in aiohttp: `python -m aiohttp.web -P 8000 examples.aiohttp_app:make_app`, with Redis at STORE."""

import os

from aiohttp import web

from batchlimit.integrations.aiohttp import Limits, limited
from batchlimit.rules import Rule

rules = [
    Rule("all", "5000/s", key="all"),
    Rule("login", "5/minute", key="login:{ip}", match="POST /login", charge=[401]),  # only failed logins
    Rule("search", "4/minute", key="search:{user}", match=None),  # for handlers that ask for it
]
messages = [Rule("chat", "20/minute", key="chat:{user}", match="/chat")]


def identify(request: web.Request) -> dict[str, object]:
    return {"user": request.headers.get("X-User", "nobody")}


@limited("search:{user}", cost=2)
async def search(request: web.Request) -> web.Response:
    return web.Response(text="found\n")


async def login(request: web.Request) -> web.Response:
    form = await request.post()
    return web.Response(status=204 if form.get("password") == "open sesame" else 401)


async def chat(request: web.Request) -> web.WebSocketResponse:
    websocket = web.WebSocketResponse()
    await websocket.prepare(request)
    async for message in websocket:
        await websocket.send_str(message.data)
    return websocket


def make_app(arguments: list[str] | None = None) -> web.Application:
    app = web.Application()
    app.add_routes([web.get("/search", search), web.post("/login", login), web.get("/chat", chat)])
    store = os.environ.get("STORE", "redis://localhost:6379/0")
    Limits(store, rules, identify=identify, messages=messages).setup(app)
    return app
