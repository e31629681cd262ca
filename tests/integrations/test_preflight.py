"""A CORS preflight is free where the framework or a CORS middleware answers it, and charged where a handler would."""

from functools import partial
from typing import Any

import aiohttp_cors
import pytest
from aiohttp import web
from fastapi import FastAPI
from litestar import Litestar, route
from litestar.config.cors import CORSConfig
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware

from batchlimit.integrations import fastapi as of_fastapi
from batchlimit.integrations import litestar as of_litestar
from batchlimit.integrations import starlette as of_starlette
from batchlimit.integrations.aiohttp import Limits as AiohttpLimits
from batchlimit.rules import Rule
from tests.integrations.everywhere import FACES, ROUTING, Served, in_server, on_loop
from tests.integrations.made import View, says

ORIGIN = "https://a.example"
OFF = Rule("off", "0/s", key="off")
ANSWERED, HANDLED = "/answered", "/handled"
"""Paths whose preflight the framework answers, and a handler."""
VIEWS = [View(ANSWERED, says("handled")), View(HANDLED, says("handled"), methods=("OPTIONS",))]


def status(served: Served, path: str, origin: str = ORIGIN) -> int:
    return served.get(path, method="OPTIONS", origin=origin, access_control_request_method="GET").status


def by_table(face: str, path: str, **options: Any) -> int:
    with FACES[face]([OFF], "memory://", VIEWS, **options) as served:
        return status(served, path)


def on_asgi(app: Any, path: str, origin: str = ORIGIN) -> int:
    with on_loop(app, lambda: None) as served:
        return status(served, path, origin)


def on_starlette_with_cors(path: str, **options: Any) -> int:
    app = Starlette()
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    of_starlette.add_rate_limits(app, "memory://", [OFF], **options)
    return on_asgi(app, path)


def on_fastapi_with_cors_within_limited_twice(path: str, **options: Any) -> int:
    app = FastAPI()
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    for _ in range(2):
        of_fastapi.add_rate_limits(app, "memory://", [OFF], **options)
    return on_asgi(app, path)


def on_fastapi_limited_twice(path: str, **options: Any) -> int:
    app = FastAPI()
    app.options(HANDLED)(lambda: "handled")
    of_fastapi.add_rate_limits(app, "memory://", [OFF], **options)
    of_fastapi.add_rate_limits(app, "memory://", [Rule("other", "9/s", key="other", match=None)])
    return on_asgi(app, path)


@route(HANDLED, http_method="OPTIONS")
async def handled_by_litestar() -> str:
    return "handled"


def on_litestar_with_cors(path: str, *, origin: str = ORIGIN, **options: Any) -> int:
    app = Litestar([handled_by_litestar], logging_config=None, cors_config=CORSConfig())
    of_litestar.add_rate_limits(app, "memory://", [OFF], **options)
    return on_asgi(app, path, origin)


async def handled_by_aiohttp(request: web.Request) -> web.Response:
    return web.Response()


def on_aiohttp_with_cors(path: str, **options: Any) -> int:
    app = web.Application()
    cors = aiohttp_cors.setup(app, defaults={"*": aiohttp_cors.ResourceOptions()})  # type: ignore[no-untyped-call]
    cors.add(app.router.add_get(ANSWERED, handled_by_aiohttp))
    app.router.add_route("*", HANDLED, handled_by_aiohttp)
    AiohttpLimits("memory://", [OFF], **options).setup(app)
    with in_server(app, lambda: None) as served:
        return status(served, path)


BY_ROUTE = [partial(by_table, "quart"), partial(by_table, "flask"), on_aiohttp_with_cors]
"""The framework, or an extension of its routes, answers for some routes."""
BEFORE_ALL = [on_starlette_with_cors, on_fastapi_with_cors_within_limited_twice, on_litestar_with_cors]
"""The CORS middleware of Litestar does not answer without an origin."""
TABLED = [partial(by_table, face) for face in ROUTING if face not in ("quart", "flask")]


@pytest.mark.parametrize("face", [*BY_ROUTE, *BEFORE_ALL])
def test_a_preflight_that_no_handler_answers_is_free_unless_told_otherwise(face: Any) -> None:
    assert face(ANSWERED) in (200, 204)
    assert face(ANSWERED, limit_preflight=True) == 429


@pytest.mark.parametrize(
    "face", [*BY_ROUTE, *TABLED, on_fastapi_limited_twice, partial(on_litestar_with_cors, origin="")]
)
def test_a_preflight_that_a_handler_would_answer_is_charged(face: Any) -> None:
    assert face(HANDLED) == 429


@pytest.mark.parametrize("face", [*TABLED, on_aiohttp_with_cors])
def test_a_preflight_that_nobody_answers_is_charged(face: Any) -> None:
    assert face("/nowhere") == 429
