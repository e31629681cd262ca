"""A limit that is written without its key says what to write, where the application is written or starts."""

from collections.abc import Callable
from traceback import format_exception
from typing import Any

import pytest
from aiohttp import web
from django.http import HttpRequest, HttpResponse
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient as FastAPIClient
from flask import Flask
from litestar import Litestar, get
from litestar.testing import TestClient as LitestarClient
from quart import Quart
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient as StarletteClient

from batchlimit.integrations import aiohttp, fastapi, flask, litestar, quart
from batchlimit.integrations.django import limited as limited_view
from batchlimit.integrations.starlette import RouteLimitMiddleware
from batchlimit.rules import Rule
from tests.integrations.django_site import Site

RULES = [Rule("search", "1/hour", key="search:{ip}", match=None)]


def of_flask() -> None:
    app = Flask("shop")
    limits: Any = flask.Limits("memory://", RULES, app)

    @app.route("/search")
    @limits.limited
    def search() -> str:
        return "found"


def of_quart() -> None:
    app = Quart("shop")
    limited: Any = quart.limited

    @app.route("/search")
    @limited
    async def search() -> str:
        return "found"


def of_aiohttp() -> None:
    routes = web.RouteTableDef()
    limited: Any = aiohttp.limited

    @routes.get("/search")
    @limited
    async def search(request: web.Request) -> web.Response:
        return web.Response(text="found")


def of_django() -> None:
    limited: Any = limited_view

    @limited
    def search(request: HttpRequest) -> HttpResponse:
        return HttpResponse("found")


def of_rest_framework() -> None:
    assert issubclass(Site, object)  # its module has the settings, which REST framework reads when it is imported
    from batchlimit.integrations.django.rest import throttle

    class Search:
        """A view."""

        throttle_classes = (throttle(Response),)  # type: ignore[arg-type]


def of_starlette() -> None:
    async def search(request: Request) -> Response:
        return Response("found")

    app = Starlette(routes=[Route("/search", search, middleware=[Middleware(RouteLimitMiddleware, search)])])  # type: ignore[arg-type]
    StarletteClient(app).get("/search")


def of_fastapi() -> None:
    app = FastAPI()
    limited: Any = fastapi.limited

    @app.get("/search")
    @limited
    def search() -> str:
        return "found"


def _served_by_fastapi(dependency: Any) -> None:
    app = FastAPI()
    fastapi.add_rate_limits(app, "memory://", RULES)

    @app.get("/search", dependencies=[dependency])
    def search() -> str:
        return "found"

    with FastAPIClient(app):
        pass


def of_litestar() -> None:
    limited: Any = litestar.limited

    @get("/search")
    @limited
    async def search() -> str:
        return "found"


def _served_by_litestar(guard: Any) -> None:
    @get("/search", guards=[guard])
    async def search() -> str:
        return "found"

    app = Litestar([search], logging_config=None)
    litestar.add_rate_limits(app, "memory://", RULES)
    with LitestarClient(app):
        pass


def below_a_route_of_litestar() -> None:
    limited: Any = litestar.limited("search:{ip}")

    @get("/search")
    @limited
    async def search() -> str:
        return "found"


DEPENDS = "dependencies=[Depends(limited('search:{user}'))]"
GUARDS = "guards=[limited('search:{user}')]"
CASES: dict[str, tuple[Callable[[], None], str]] = {
    "Flask": (of_flask, "@limits.limited('search:{user}')"),
    "Quart": (of_quart, "@limited('search:{user}')"),
    "aiohttp": (of_aiohttp, "@limited('search:{user}')"),
    "Django": (of_django, "@limited('search:{user}')"),
    "REST framework": (of_rest_framework, "throttle_classes = [throttle('search:{user}')]"),
    "Starlette": (of_starlette, "Middleware(RouteLimitMiddleware, 'search:{user}')"),
    "FastAPI": (of_fastapi, DEPENDS),
    "FastAPI, Depends(limited)": (lambda: _served_by_fastapi(Depends(fastapi.limited)), DEPENDS),
    "FastAPI, without Depends": (lambda: _served_by_fastapi(fastapi.limited("search:{user}")), DEPENDS),
    "Litestar": (of_litestar, GUARDS),
    "Litestar, guards=[limited]": (lambda: _served_by_litestar(litestar.limited), GUARDS),
    "Litestar, as a decorator": (below_a_route_of_litestar, "guards=[limited('search:{ip}')]"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_limit_without_its_key_says_what_to_write(case: str) -> None:
    written, remedy = CASES[case]
    with pytest.raises((ValueError, TypeError, ExceptionGroup)) as told:
        written()
    assert remedy in "".join(format_exception(told.value))


@pytest.mark.parametrize("kind", [flask.Limits, quart.Limits], ids=["flask", "quart"])
def test_an_extension_can_be_looked_at_where_no_application_is(kind: type) -> None:
    """As documentation and mocks do."""
    for name in dir(kind):
        hasattr(getattr(kind, name), "__qualname__")
