"""A CORS preflight is free where the framework or a CORS middleware answers it, and charged where a handler would."""

import asyncio
from collections.abc import Awaitable, Callable
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
Ask = Callable[[str], Awaitable[int]]
"""Sends a preflight to a path; returns the status."""
Test = Callable[[Ask], Awaitable[None]]


async def on_asgi(app: Any, test: Test, origin: str = FIELDS["Origin"]) -> None:
    fields = [(name.lower().encode(), value.encode()) for name, value in {**FIELDS, "Origin": origin}.items()]

    async def ask(path: str) -> int:
        return (await call(app, http(path, "OPTIONS", headers=fields))).status

    await test(ask)


async def handler(request: Any) -> Response:
    return Response("handled")


async def on_starlette(test: Test, **options: Any) -> None:
    app = Starlette(routes=[Route(HANDLED, handler, methods=["OPTIONS"])])
    of_starlette.add_rate_limits(app, "memory://", [OFF], **options)
    await on_asgi(app, test)


async def on_starlette_with_cors_within(test: Test, **options: Any) -> None:
    app = Starlette(routes=[Route(HANDLED, handler, methods=["OPTIONS"])])
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    of_starlette.add_rate_limits(app, "memory://", [OFF], **options)
    await on_asgi(app, test)


async def on_fastapi_with_cors_within_limited_twice(test: Test, **options: Any) -> None:
    app = FastAPI()
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    for _ in range(2):
        of_fastapi.add_rate_limits(app, "memory://", [OFF], **options)
    await on_asgi(app, test)


async def on_fastapi_limited_twice(test: Test, **options: Any) -> None:
    app = FastAPI()
    app.options(HANDLED)(lambda: "handled")
    of_fastapi.add_rate_limits(app, "memory://", [OFF], **options)
    of_fastapi.add_rate_limits(app, "memory://", [Rule("other", "9/s", key="other", match=None)])
    await on_asgi(app, test)


@route(HANDLED, http_method="OPTIONS")
async def handled_by_litestar() -> str:
    return "handled"


async def on_litestar(test: Test, **options: Any) -> None:
    app = Litestar([handled_by_litestar], logging_config=None)
    of_litestar.add_rate_limits(app, "memory://", [OFF], **options)
    await on_asgi(app, test)


async def on_litestar_with_cors(test: Test, origin: str = FIELDS["Origin"], **options: Any) -> None:
    app = Litestar([handled_by_litestar], logging_config=None, cors_config=CORSConfig())
    of_litestar.add_rate_limits(app, "memory://", [OFF], **options)
    await on_asgi(app, test, origin)


async def on_litestar_whose_cors_does_not_answer(test: Test) -> None:
    await on_litestar_with_cors(test, origin="")


async def on_quart(test: Test, **options: Any) -> None:
    async def view() -> str:
        return "handled"

    app = Quart(__name__)
    app.add_url_rule(ANSWERED, "answered", view)
    app.add_url_rule(HANDLED, "handled", view, methods=["OPTIONS"])
    QuartLimits("memory://", [OFF], app, **options)
    await on_asgi(app, test)


async def on_flask(test: Test, **options: Any) -> None:
    app = flask.Flask(__name__)
    app.add_url_rule(ANSWERED, "answered", lambda: "handled")
    app.add_url_rule(HANDLED, "handled", lambda: "handled", methods=["OPTIONS"])
    FlaskLimits("memory://", [OFF], app, **options)

    async def ask(path: str) -> int:
        return app.test_client().options(path, headers=FIELDS).status_code

    await test(ask)


async def handled_by_aiohttp(request: web.Request) -> web.Response:
    return web.Response()


async def on_aiohttp(test: Test, **options: Any) -> None:
    app = web.Application()
    cors = aiohttp_cors.setup(app, defaults={"*": aiohttp_cors.ResourceOptions()})  # type: ignore[no-untyped-call]
    cors.add(app.router.add_get(ANSWERED, handled_by_aiohttp))
    app.router.add_route("*", HANDLED, handled_by_aiohttp)
    AiohttpLimits("memory://", [OFF], **options).setup(app)
    async with served(app) as url, aiohttp.ClientSession() as client:

        async def ask(path: str) -> int:
            async with client.options(url + path, headers=FIELDS) as reply:
                return reply.status

        await test(ask)


BY_ROUTE = [on_quart, on_flask, on_aiohttp]
"""The framework, or an extension of its routes, answers for some routes."""
BEFORE_ALL = [on_starlette_with_cors_within, on_fastapi_with_cors_within_limited_twice, on_litestar_with_cors]
"""A CORS middleware within the limits answers for all of them."""
ON_LITESTAR = [on_litestar, on_litestar_whose_cors_does_not_answer]


@pytest.mark.parametrize("face", [*BY_ROUTE, *BEFORE_ALL])
def test_a_preflight_that_no_handler_answers_is_free_unless_told_otherwise(face: Any) -> None:
    async def free(ask: Ask) -> None:
        assert await ask(ANSWERED) in (200, 204)

    async def limited(ask: Ask) -> None:
        assert await ask(ANSWERED) == 429

    asyncio.run(face(free))
    asyncio.run(face(limited, limit_preflight=True))


@pytest.mark.parametrize("face", [*BY_ROUTE, on_starlette, on_fastapi_limited_twice, *ON_LITESTAR])
def test_a_preflight_that_a_handler_would_answer_is_charged(face: Any) -> None:
    async def refused(ask: Ask) -> None:
        assert await ask(HANDLED) == 429

    asyncio.run(face(refused))


@pytest.mark.parametrize("face", [on_aiohttp, on_starlette, on_litestar])
def test_a_preflight_that_nobody_answers_is_charged(face: Any) -> None:
    async def refused(ask: Ask) -> None:
        assert await ask("/nowhere") == 429

    asyncio.run(face(refused))
