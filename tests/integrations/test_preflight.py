"""A CORS preflight is free where the framework or a CORS middleware answers it, and charged where a handler would."""

from functools import partial
from typing import Any

import aiohttp
import aiohttp_cors
import flask
import pytest
from aiohttp import web
from fastapi import FastAPI
from litestar import Litestar, route
from litestar.config.cors import CORSConfig
from quart import Quart
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route

from batchlimit.integrations import fastapi as of_fastapi
from batchlimit.integrations import litestar as of_litestar
from batchlimit.integrations import starlette as of_starlette
from batchlimit.integrations.aiohttp import Limits as AiohttpLimits
from batchlimit.integrations.flask import Limits as FlaskLimits
from batchlimit.integrations.quart import Limits as QuartLimits
from batchlimit.rules import Rule
from tests.integrations.asgi import call, http
from tests.integrations.test_aiohttp import served

FIELDS = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
OFF = Rule("off", "0/s", key="off")
ANSWERED, HANDLED = "/answered", "/handled"
"""Paths whose preflight the framework answers, and a handler."""


async def on_asgi(app: Any, path: str, origin: str = FIELDS["Origin"]) -> int:
    fields = [(name.lower().encode(), value.encode()) for name, value in {**FIELDS, "Origin": origin}.items()]
    return (await call(app, http(path, "OPTIONS", headers=fields))).status


async def handler(request: Any) -> Response:
    return Response("handled")


async def on_starlette(path: str, *, cors: bool = False, **options: Any) -> int:
    app = Starlette(routes=[Route(HANDLED, handler, methods=["OPTIONS"])])
    if cors:
        app.add_middleware(CORSMiddleware, allow_origins=["*"])
    of_starlette.add_rate_limits(app, "memory://", [OFF], **options)
    return await on_asgi(app, path)


async def on_fastapi_with_cors_within_limited_twice(path: str, **options: Any) -> int:
    app = FastAPI()
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    for _ in range(2):
        of_fastapi.add_rate_limits(app, "memory://", [OFF], **options)
    return await on_asgi(app, path)


async def on_fastapi_limited_twice(path: str, **options: Any) -> int:
    app = FastAPI()
    app.options(HANDLED)(lambda: "handled")
    of_fastapi.add_rate_limits(app, "memory://", [OFF], **options)
    of_fastapi.add_rate_limits(app, "memory://", [Rule("other", "9/s", key="other", match=None)])
    return await on_asgi(app, path)


@route(HANDLED, http_method="OPTIONS")
async def handled_by_litestar() -> str:
    return "handled"


async def on_litestar(
    path: str, *, cors: CORSConfig | None = None, origin: str = FIELDS["Origin"], **options: Any
) -> int:
    app = Litestar([handled_by_litestar], logging_config=None, cors_config=cors)
    of_litestar.add_rate_limits(app, "memory://", [OFF], **options)
    return await on_asgi(app, path, origin)


async def on_quart(path: str, **options: Any) -> int:
    async def view() -> str:
        return "handled"

    app = Quart(__name__)
    app.add_url_rule(ANSWERED, "answered", view)
    app.add_url_rule(HANDLED, "handled", view, methods=["OPTIONS"])
    QuartLimits("memory://", [OFF], app, **options)
    return await on_asgi(app, path)


async def on_flask(path: str, **options: Any) -> int:
    app = flask.Flask(__name__)
    app.add_url_rule(ANSWERED, "answered", lambda: "handled")
    app.add_url_rule(HANDLED, "handled", lambda: "handled", methods=["OPTIONS"])
    FlaskLimits("memory://", [OFF], app, **options)
    return app.test_client().options(path, headers=FIELDS).status_code


async def handled_by_aiohttp(request: web.Request) -> web.Response:
    return web.Response()


async def on_aiohttp(path: str, **options: Any) -> int:
    app = web.Application()
    cors = aiohttp_cors.setup(app, defaults={"*": aiohttp_cors.ResourceOptions()})  # type: ignore[no-untyped-call]
    cors.add(app.router.add_get(ANSWERED, handled_by_aiohttp))
    app.router.add_route("*", HANDLED, handled_by_aiohttp)
    AiohttpLimits("memory://", [OFF], **options).setup(app)
    async with served(app) as url, aiohttp.ClientSession() as client, client.options(url + path, headers=FIELDS) as got:
        return got.status


BY_ROUTE = [on_quart, on_flask, on_aiohttp]
"""The framework, or an extension of its routes, answers for some routes."""
BEFORE_ALL: list[Any] = [
    partial(on_starlette, cors=True),
    on_fastapi_with_cors_within_limited_twice,
    partial(on_litestar, cors=CORSConfig()),
]
ON_LITESTAR: list[Any] = [on_litestar, partial(on_litestar, cors=CORSConfig(), origin="")]
"""The CORS middleware of the latter does not answer."""


@pytest.mark.parametrize("face", [*BY_ROUTE, *BEFORE_ALL])
async def test_a_preflight_that_no_handler_answers_is_free_unless_told_otherwise(face: Any) -> None:
    assert await face(ANSWERED) in (200, 204)
    assert await face(ANSWERED, limit_preflight=True) == 429


@pytest.mark.parametrize("face", [*BY_ROUTE, on_starlette, on_fastapi_limited_twice, *ON_LITESTAR])
async def test_a_preflight_that_a_handler_would_answer_is_charged(face: Any) -> None:
    assert await face(HANDLED) == 429


@pytest.mark.parametrize("face", [on_aiohttp, on_starlette, on_litestar])
async def test_a_preflight_that_nobody_answers_is_charged(face: Any) -> None:
    assert await face("/nowhere") == 429
