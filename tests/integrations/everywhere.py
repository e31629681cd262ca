"""One small application in every framework, in this process: `/hello`, and `/search`, which asks for a rule.

Each view answers with what it sees of the rules.
"""

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.test.utils import override_settings
from django.urls import path as url
from fastapi import Depends, FastAPI
from fastapi import Request as FastAPIRequest
from fastapi.responses import PlainTextResponse
from flask import Flask
from flask import request as flask_request
from litestar import Litestar, MediaType, get
from litestar import Request as LitestarRequest
from quart import Quart
from quart import request as quart_request
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request as StarletteRequest
from starlette.routing import Route

from batchlimit.integrations import aiohttp, asgi, django, fastapi, flask, litestar, quart, starlette, wsgi
from tests.integrations import django_site
from tests.integrations.asgi import call, http, part, start
from tests.integrations.faces.rules import user_of

KEY = "search:{user}"


class Reply(NamedTuple):
    """What a client got."""

    status: int
    text: str
    fields: dict[str, str]


def seen(decisions: Any, request: Any) -> str:
    """Return what a view sees: by rule whether it admits, the limit, what is left, the wait, and who decided."""
    found = decisions(request).items()
    return json.dumps({n: [d.allowed, d.limit, d.remaining, round(d.retry_after), d.source] for n, d in found})


class Served:
    """An application that is called.

    Attributes:
        statistics: what became of the requests.
    """

    def __init__(self, get: Callable[[str, dict[str, str]], Reply], statistics: Callable[[], Any]) -> None:
        self._get, self.statistics = get, statistics

    def get(self, path: str, user: str = "ann", **fields: str) -> Reply:
        """Call it with a path, as a user, with header fields."""
        return self._get(path, {"x-user": user, **{name.replace("_", "-"): text for name, text in fields.items()}})

    def statuses(self, path: str, times: int, user: str = "ann") -> list[int]:
        return [self.get(path, user).status for _ in range(times)]


@contextmanager
def on_loop(app: Any, statistics: Callable[[], Any]) -> Iterator[Served]:
    with asyncio.Runner() as runner:

        def get(path: str, given: dict[str, str]) -> Reply:
            headers = [(name.encode(), text.encode()) for name, text in {"host": "x", **given}.items()]
            reply = runner.run(call(app, http(path, headers=headers)))
            fields = {name.decode(): value.decode() for name, value in reply.fields.items()}
            return Reply(reply.status, reply.body.decode(), fields)

        yield Served(get, statistics)


@contextmanager
def in_thread(app: Any, statistics: Callable[[], Any]) -> Iterator[Served]:
    def get(path: str, given: dict[str, str]) -> Reply:
        told: list[Any] = []
        environ: dict[str, Any] = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "REMOTE_ADDR": "192.0.2.1"}
        environ |= {f"HTTP_{name.upper().replace('-', '_')}": text for name, text in given.items()}
        environ |= {"SERVER_NAME": "x", "SERVER_PORT": "80", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO()}
        body = app(environ, lambda status, fields, *_: told.extend((status, fields)))
        text = b"".join(body).decode()
        getattr(body, "close", lambda: None)()
        return Reply(int(told[0][:3]), text, {name.lower(): value for name, value in told[1]})

    yield Served(get, statistics)


def with_asgi(rules: Any, source: Any = "memory://", **options: Any) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(part(seen(asgi.decisions, scope).encode()))

    route = asgi.RouteLimitMiddleware(app, KEY)

    async def routed(scope: Any, receive: Any, send: Any) -> None:
        await (route if scope["path"] == "/search" else app)(scope, receive, send)

    limits = asgi.RateLimitMiddleware(routed, source, rules, **{"identify": user_of, **options})
    return on_loop(limits, limits.statistics)


def with_fastapi(rules: Any, source: Any = "memory://", **options: Any) -> Any:
    app = FastAPI(default_response_class=PlainTextResponse)

    @app.get("/hello")
    @app.get("/search", dependencies=[Depends(fastapi.limited(KEY))])
    def hello(request: FastAPIRequest) -> str:
        return seen(fastapi.decisions, request)

    limits = fastapi.add_rate_limits(app, source, rules, **{"identify": user_of, **options})
    return on_loop(app, limits.statistics)


def with_starlette(rules: Any, source: Any = "memory://", **options: Any) -> Any:
    async def hello(request: StarletteRequest) -> PlainTextResponse:
        return PlainTextResponse(seen(starlette.decisions, request))

    search = Route("/search", hello, middleware=[Middleware(starlette.RouteLimitMiddleware, KEY)])
    app = Starlette(routes=[Route("/hello", hello), search])
    limits = starlette.add_rate_limits(app, source, rules, **{"identify": user_of, **options})
    return on_loop(app, limits.statistics)


def with_litestar(rules: Any, source: Any = "memory://", **options: Any) -> Any:
    @get("/hello", media_type=MediaType.TEXT)
    async def hello(request: LitestarRequest[Any, Any, Any]) -> str:
        return seen(litestar.decisions, request)

    @get("/search", media_type=MediaType.TEXT, guards=[litestar.limited(KEY)])
    async def search(request: LitestarRequest[Any, Any, Any]) -> str:
        return seen(litestar.decisions, request)

    app = Litestar([hello, search], logging_config=None, openapi_config=None)
    limits = litestar.add_rate_limits(app, source, rules, **{"identify": user_of, **options})
    return on_loop(app, limits.statistics)


def with_quart(rules: Any, source: Any = "memory://", **options: Any) -> Any:
    app = Quart("shop")
    limits = quart.Limits(source, rules, app, **{"identify": user_of, **options})

    @app.get("/hello")
    async def hello() -> str:
        return seen(quart.decisions, quart_request)

    app.add_url_rule("/search", "search", quart.limited(KEY)(hello))
    return on_loop(app, partial(limits.statistics, app))


@contextmanager
def with_aiohttp(rules: Any, source: Any = "memory://", **options: Any) -> Iterator[Served]:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=seen(aiohttp.decisions, request))

    app = web.Application()
    app.router.add_get("/hello", hello)
    app.router.add_get("/search", aiohttp.limited(KEY)(hello))
    limits = aiohttp.Limits(source, rules, **{"identify": django_site.who, **options})
    limits.setup(app)
    with asyncio.Runner() as runner:
        client = runner.run(_client(app))

        async def ask(path: str, given: dict[str, str]) -> Reply:
            async with client.get(path, headers=given) as reply:
                fields = {name.lower(): value for name, value in reply.headers.items()}
                return Reply(reply.status, await reply.text(), fields)

        try:
            yield Served(lambda path, given: runner.run(ask(path, given)), limits.statistics)
        finally:
            runner.run(client.close())


async def _client(app: web.Application) -> Any:
    client = TestClient(TestServer(app))
    await client.start_server()
    return client


def with_flask(rules: Any, source: Any = "memory://", **options: Any) -> Any:
    app = Flask("shop")
    limits = flask.Limits(source, rules, app, **{"identify": django_site.who, **options})

    @app.get("/hello")
    def hello() -> str:
        return seen(flask.decisions, flask_request)

    app.add_url_rule("/search", "search", limits.limited(KEY)(lambda: seen(flask.decisions, flask_request)))
    return in_thread(app, partial(limits.statistics, app))


def with_wsgi(rules: Any, source: Any = "memory://", **options: Any) -> Any:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [seen(wsgi.decisions, environ).encode()]

    identify = {"identify": lambda environ: {"user": environ["HTTP_X_USER"]}}
    limits = wsgi.RateLimitMiddleware(app, source, rules, **{**identify, **options})
    return in_thread(limits, limits.statistics)


def _hello(request: Any) -> HttpResponse:
    return HttpResponse(seen(django.decisions, request))


urlpatterns = [url("hello", _hello), url("search", django.limited(KEY)(_hello))]


@contextmanager
def with_django(
    rules: Any, source: Any = "memory://", *, asynchronous: bool = False, **options: Any
) -> Iterator[Served]:
    mine = {"URL": source} if isinstance(source, str) else {"LIMITER": source, "ASYNC_LIMITER": source}
    mine |= {"RULES": rules, "IDENTIFY": django_site.who}
    mine |= {name.upper(): value for name, value in options.items()}
    with override_settings(BATCHLIMIT=mine, ROOT_URLCONF=__name__), asyncio.Runner() as runner:
        client: Any = (AsyncClient if asynchronous else Client)()

        def get(path: str, given: dict[str, str]) -> Reply:
            reply = client.get(path, headers=given)
            reply = runner.run(reply) if asynchronous else reply
            return Reply(reply.status_code, reply.content.decode(), {k.lower(): v for k, v in reply.headers.items()})

        yield Served(get, django.middleware.statistics)


FACES: dict[str, Any] = {
    "asgi": with_asgi,
    "fastapi": with_fastapi,
    "starlette": with_starlette,
    "litestar": with_litestar,
    "quart": with_quart,
    "aiohttp": with_aiohttp,
    "flask": with_flask,
    "wsgi": with_wsgi,
    "django": with_django,
    "django-asgi": partial(with_django, asynchronous=True),
}
"""Each face of web applications: call it with rules, perhaps with what makes its limiter, and options."""
THREADS = ("flask", "wsgi", "django")
PEERS = ["192.0.2.1", "127.0.0.1"]
"""Who asks."""
