"""Routes of aiohttp."""

from typing import Any

from aiohttp import web

from batchlimit.integrations.aiohttp import Limits
from tests.integrations.targets.apps import RULES, STORE, served


def _answering(name: str) -> Any:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="here", headers=served(name, request.method))

    return answer


def application() -> web.Application:
    app, below = web.Application(), web.Application()
    app.add_routes(
        [
            web.get("/open", _answering("open")),
            web.route("*", "/login", _answering("login")),
            web.get("/items/{id}", _answering("item")),
            web.get("/orders", _answering("order")),
            web.post("/orders", _answering("order")),
        ]
    )
    below.add_routes([web.get("", _answering("api")), web.route("*", "/{rest:.*}", _answering("api"))])
    app.add_subapp("/api", below)
    Limits(STORE, RULES).setup(app)
    return app
