"""A concurrency limit before each framework: a fast route and a slow one have a baseline each, by their templates."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.test.utils import override_settings
from fastapi import APIRouter, FastAPI

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed
from batchlimit.integrations import aiohttp, asgi, django, quart, wsgi
from batchlimit.integrations.carried import route_of
from batchlimit.laws import Knee
from batchlimit.rules import Rule
from tests.integrations import django_site  # noqa: F401  it configures Django
from tests.integrations.asgi import Hello, call, http
from tests.integrations.made import Said, View
from tests.integrations.made import aiohttp as of_aiohttp
from tests.integrations.made import django as of_django
from tests.integrations.made import flask as of_flask
from tests.integrations.made import litestar as of_litestar
from tests.integrations.made import quart as of_quart
from tests.integrations.made import starlette as of_starlette
from tests.integrations.test_wsgi import Reply, request
from tests.recording import Recording

MS = 1_000_000


class Passing:
    """ns that pass as views say."""

    def __init__(self) -> None:
        self.now = 1_000_000 * MS

    def __call__(self) -> int:
        return self.now

    def fast(self) -> str:
        self.now += 2 * MS
        return "fast"

    def slow(self) -> str:
        self.now += 50 * MS
        return "slow"


Get = Callable[[str], int]
"""Calls a path; returns the status."""


@contextmanager
def behind(app: Any, limiter: Any, **options: Any) -> Iterator[Get]:
    limited = asgi.ConcurrencyLimitMiddleware(app, limiter, **options)
    with asyncio.Runner() as runner:
        yield lambda path: runner.run(call(limited, http(path, headers=[(b"host", b"x")]))).status
        runner.run(limiter.close())


@contextmanager
def behind_wsgi(app: Any, limiter: Any, **options: Any) -> Iterator[Get]:
    limited = wsgi.ConcurrencyLimitMiddleware(app, limiter, **options)
    yield lambda path: Reply(limited, request(path=path)).status
    limiter.close()


NOBODY = Rule("nobody", "1/hour", key="nobody", match="/nobody")


def views(passing: Passing) -> list[View]:
    """A fast route and a slow one."""
    return [
        View("/fast/{n}", lambda request, n: Said(passing.fast())),
        View("/slow/{n}", lambda request, n: Said(passing.slow())),
    ]


def with_plain_asgi(passing: Passing, limiter: Any) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        getattr(passing, scope["path"].split("/")[1])()
        await Hello()(scope, receive, send)

    return behind(app, limiter, operation=lambda scope: f"GET /{scope['path'].split('/')[1]}/{{n}}")


def with_fastapi(passing: Passing, limiter: Any) -> Any:
    app, router = FastAPI(), APIRouter()
    app.get("/fast/{n}")(lambda n: passing.fast())
    router.get("/{n}")(lambda n: passing.slow())
    app.include_router(router, prefix="/slow")
    return behind(app, limiter)


def with_quart(passing: Passing, limiter: Any) -> Any:
    app = of_quart.application(views(passing))
    quart.name_operations(app)
    return behind(app, limiter)


@contextmanager
def with_django(passing: Passing, limiter: Any, *, tasks: bool = False) -> Iterator[Get]:
    name = f"{django.operation_names.__module__}.operation_names"
    serving: Any = behind if tasks else behind_wsgi
    routes = of_django.urls(views(passing), "sync")
    with (
        override_settings(ROOT_URLCONF=routes, MIDDLEWARE=[name], ALLOWED_HOSTS=["*"]),
        serving(ASGIHandler() if tasks else WSGIHandler(), limiter) as found,
    ):
        yield found


@contextmanager
def serving_aiohttp(app: web.Application, limiter: Any) -> Iterator[Get]:
    with asyncio.Runner() as runner:
        client: TestClient[Any, Any] = TestClient(TestServer(app, loop=runner.get_loop()), loop=runner.get_loop())
        runner.run(client.start_server())

        async def status(path: str) -> int:
            async with client.get(path) as response:
                await response.read()
                return response.status

        yield lambda path: runner.run(status(path))
        runner.run(client.close())
        runner.run(limiter.close())


def with_aiohttp(passing: Passing, limiter: Any) -> Any:
    app, _ = of_aiohttp.made(views(passing), "memory://", [NOBODY])
    app.middlewares.insert(0, aiohttp.concurrency_limits(limiter))
    return serving_aiohttp(app, limiter)


FACES: dict[str, tuple[Any, bool, str]] = {
    "asgi": (with_plain_asgi, True, "{n}"),
    "fastapi": (with_fastapi, True, "{n}"),
    "starlette": (lambda passing, limiter: behind(of_starlette.application(views(passing)), limiter), True, "{n}"),
    "litestar": (lambda passing, limiter: behind(of_litestar.application(views(passing)), limiter), True, "{n}"),
    "quart": (with_quart, True, "<n>"),
    "django-asgi": (partial(with_django, tasks=True), True, "<n>"),
    "django": (with_django, False, "<n>"),
    "flask": (lambda passing, limiter: behind_wsgi(of_flask.application(views(passing), None), limiter), False, "<n>"),
    "aiohttp": (with_aiohttp, True, "{n}"),
}
"""What serves each face, whether in tasks, and how it writes a parameter."""


@pytest.mark.parametrize("face", FACES)
def test_a_fast_route_and_a_slow_one_have_a_baseline_each(face: str) -> None:
    (serving, tasks, parameter), passing = FACES[face], Passing()
    named = {f"GET /{speed}/{parameter}" for speed in ("fast", "slow")}
    limiter: Any = (AsyncConcurrencyLimiter if tasks else ConcurrencyLimiter)(Knee(), clock=passing)
    with serving(passing, limiter) as status:
        for n in range(60):
            assert (status(f"/fast/{n}"), status(f"/slow/{n}")) == (200, 200)
        assert face == "asgi" or status("/nowhere") in (200, 404)
        found = limiter.statistics().baselines
    assert set(found) - {""} == named
    fast, slow = sorted(found[each] for each in named)
    assert (fast, slow) == (pytest.approx(0.002), pytest.approx(0.05))


def test_a_name_is_of_every_key_and_one_that_cannot_be_had_is_none() -> None:
    async def of(operation: Any) -> list[str]:
        laws: list[Recording] = []

        def law() -> Recording:
            laws.append(Recording(5))
            return laws[-1]

        async with AsyncKeyedConcurrencyLimiter({"*": Keyed(law)}) as limiter:
            limited = asgi.ConcurrencyLimitMiddleware(
                Hello(), limiter, key=lambda scope: ["a", "b"], operation=operation
            )
            await call(limited, http())
        return [sample.operation for each in laws for sample in each.samples]

    def fails(scope: Any) -> str:
        raise KeyError("route")

    assert asyncio.run(of(lambda scope: "hello")) == ["hello", "hello"]
    assert asyncio.run(of(fails)) == ["", ""]
    assert asyncio.run(of(lambda scope: 1)) == ["", ""]


def test_names_are_bounded_whatever_clients_send() -> None:
    assert route_of({"method": "FOO123", "path_template": "/a"}) == ""
    assert route_of({"REQUEST_METHOD": "GET"}) == ""
    assert route_of({"method": "GET", "path_template": "/a"}) == "GET /a"
    assert route_of({"method": "GET", "endpoint": Hello.__call__}) == "GET tests.integrations.asgi.Hello.__call__"
    assert route_of({"method": "GET", "endpoint": Hello()}) == "GET tests.integrations.asgi.Hello"


def test_aiohttp_refuses_above_the_limit_and_what_a_route_refuses_tells_nothing() -> None:
    limits = aiohttp.Limits("memory://", [Rule("search", "1/hour", key="search", match=None)])
    law = Recording(1)
    limiter = AsyncConcurrencyLimiter(law)

    @aiohttp.limited("search")
    async def search(request: web.Request) -> web.Response:
        return web.Response(text="found")

    async def fails(request: web.Request) -> web.Response:
        raise web.HTTPServiceUnavailable

    app = web.Application(middlewares=[aiohttp.concurrency_limits(limiter)])
    app.add_routes([web.get("/search", search), web.get("/fails", fails)])
    limits.setup(app)
    with serving_aiohttp(app, limiter) as status:
        assert [status("/search"), status("/search"), status("/fails")] == [200, 429, 503]
        found = limiter.statistics()
        assert (found.in_flight, found.succeeded, found.ignored, found.dropped) == (0, 1, 1, 1)
        assert [each.operation for each in law.samples] == ["GET /search", "GET /fails"]
        permit = limiter.acquire()
        asyncio.run(_entered(permit))
        assert status("/search") == 503
        permit.success()


async def _entered(permit: Any) -> None:
    await permit


def test_routes_of_mounted_applications_are_told_apart() -> None:
    """Two versions of one interface have the same templates."""
    app, law = FastAPI(), Recording(20)
    for path, view in (("/v1", lambda n: "old"), ("/v2/{who}", lambda n: "new")):
        version = FastAPI()
        version.get("/search/{n}")(_named(view, path[1:3]))
        app.mount(path, version)
    with behind(app, AsyncConcurrencyLimiter(law)) as get:
        paths = "/v1/search/1", "/v1/search/2", "/v2/ann/search/1", "/v2/bob/search/1", "/v1/nothing"
        assert [get(path) for path in paths] == [200, 200, 200, 200, 404]
    first, again, other, another, nothing = (sample.operation for sample in law.samples)
    assert first == again != other == another
    assert nothing == ""
    assert all(name.startswith("GET ") for name in (first, other))


def _named(view: Any, name: str) -> Any:
    view.__qualname__ = name
    return view
