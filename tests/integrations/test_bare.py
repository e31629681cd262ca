"""A limit that is written without its key says what to write, where the application is written or starts."""

import subprocess
import sys
from collections.abc import Callable
from traceback import format_exception
from typing import Any, cast

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient as FastAPIClient
from flask import Flask
from litestar import Litestar, get
from litestar.testing import TestClient as LitestarClient
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient as StarletteClient

from batchlimit.integrations import aiohttp, django, fastapi, flask, litestar, quart
from batchlimit.integrations.starlette import RouteLimitMiddleware
from batchlimit.rules import Rule
from tests.integrations.django_site import Site

RULES = [Rule("search", "1/hour", key="search:{ip}", match=None)]


def view(*_: Any) -> Any: ...


def of_rest_framework() -> object:
    assert issubclass(Site, object)  # its module has the settings, which REST framework reads when it is imported
    from batchlimit.integrations.django.rest import throttle

    return throttle(view)  # type: ignore[arg-type]


def of_starlette() -> None:
    async def search(request: Request) -> Response:
        return Response("found")

    app = Starlette(routes=[Route("/search", search, middleware=[Middleware(RouteLimitMiddleware, search)])])  # type: ignore[arg-type]
    StarletteClient(app).get("/search")


def _served_by_fastapi(dependency: Any) -> None:
    app = FastAPI()
    fastapi.add_rate_limits(app, "memory://", RULES)

    @app.get("/search", dependencies=[dependency])
    def search() -> str:
        return "found"

    with FastAPIClient(app):
        pass


def _served_by_litestar(guard: Any) -> None:
    @get("/search", guards=[guard])
    async def search() -> str:
        return "found"

    app = Litestar([search], logging_config=None)
    litestar.add_rate_limits(app, "memory://", RULES)
    with LitestarClient(app):
        pass


DEPENDS = "dependencies=[Depends(limited('search:{user}'))]"
GUARDS = "guards=[limited('search:{user}')]"
WRITTEN = "@limited('search:{user}')"
BARE: Any = {"Quart": quart, "aiohttp": aiohttp, "Django": django, "FastAPI": fastapi, "Litestar": litestar}
CASES: dict[str, tuple[Callable[[], object], str]] = {
    "Flask": (
        lambda: cast(Any, flask.Limits("memory://", RULES, Flask("shop"))).limited(view),
        "@limits.limited('search:{user}')",
    ),
    "Quart": (lambda: BARE["Quart"].limited(view), WRITTEN),
    "aiohttp": (lambda: BARE["aiohttp"].limited(view), WRITTEN),
    "Django": (lambda: BARE["Django"].limited(view), WRITTEN),
    "REST framework": (of_rest_framework, "throttle_classes = [throttle('search:{user}')]"),
    "Starlette": (of_starlette, "Middleware(RouteLimitMiddleware, 'search:{user}')"),
    "FastAPI": (lambda: BARE["FastAPI"].limited(view), DEPENDS),
    "FastAPI, Depends(limited)": (lambda: _served_by_fastapi(Depends(fastapi.limited)), DEPENDS),
    "FastAPI, without Depends": (lambda: _served_by_fastapi(fastapi.limited("search:{user}")), DEPENDS),
    "Litestar": (lambda: BARE["Litestar"].limited(view), GUARDS),
    "Litestar, guards=[limited]": (lambda: _served_by_litestar(litestar.limited), GUARDS),
    "Litestar, as a decorator": (
        lambda: get("/search")(BARE["Litestar"].limited("search:{ip}")(view)),
        "guards=[limited('search:{ip}')]",
    ),
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


# What an integration says whose framework is not installed
ALIKE = ["aiohttp", "arq", "botocore", "celery", "dramatiq", "niquests", "procrastinate", "requests", "rq", "taskiq"]
EXTRAS = [(name, name, name) for name in ALIKE] + [("aiohttp_client", "aiohttp", "aiohttp"), ("grpc", "grpc", "grpcio")]
EXTRAS += [(name, name, name.title()) for name in ("django", "flask", "quart")]


@pytest.mark.parametrize(("name", "module", "package"), EXTRAS)
def test_a_missing_framework_names_the_extra(name: str, module: str, package: str) -> None:
    without = f"import sys; sys.modules[{module!r}] = None; import batchlimit.integrations.{name}"
    found = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    extra = name.removesuffix("_client")
    assert found.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: batchlimit.integrations.{name} needs {package}, of the {extra!r} extra: "
        f"pip install 'batchlimit[{extra}]'"
    )
