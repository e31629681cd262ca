"""One application in every framework, in this process; its views tell what they see, and `/search` asks for a rule."""

import asyncio
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.integrations import aiohttp, asgi, django, fastapi, flask, litestar, quart, starlette, wsgi
from batchlimit.integrations.django.configuration import front
from batchlimit.integrations.permits import ConcurrencyLimit
from tests.integrations.asgi import call, http
from tests.integrations.made import Made, Said, View, plain
from tests.integrations.made import aiohttp as of_aiohttp
from tests.integrations.made import django as of_django
from tests.integrations.made import fastapi as of_fastapi
from tests.integrations.made import flask as of_flask
from tests.integrations.made import litestar as of_litestar
from tests.integrations.made import quart as of_quart
from tests.integrations.made import starlette as of_starlette
from tests.integrations.structured import Limit, read_limits

KEY = "search:{user}"
Views = Sequence[View]
Around = Callable[[Any], Any]
"""Returns what is served in the place of an application: something before it."""


class Reply(NamedTuple):
    """What a client got."""

    status: int
    text: str
    fields: dict[str, str]

    @property
    def limits(self) -> dict[str, Limit]:
        return read_limits(self.fields)


def seen(decisions: Any, request: Any) -> str:
    """Return what a view sees: by rule whether it admits, the limit, what is left, the wait, and who decided."""
    found = decisions(request).items()
    return json.dumps({n: [d.allowed, d.limit, d.remaining, round(d.retry_after), d.source] for n, d in found})


class Served:
    """An application that is called: by `call` with a scope and messages on ASGI; for aiohttp that is a client.

    What a task awaits, `run` awaits on its loop; in a thread it is there.
    """

    def __init__(self, get: Callable[..., Reply], statistics: Any, run: Callable[[Any], Any], call: Any = None) -> None:
        self._get, self.statistics, self.run, self.call = get, statistics, run, call

    def get(self, path: str, user: str = "ann", method: str = "GET", **fields: str) -> Reply:
        """Call it with a path, as a user, by a method, with header fields."""
        given = {name.replace("_", "-"): text for name, text in fields.items()}
        return self._get(method, path, {"x-user": user, **given})

    def statuses(self, path: str, times: int, user: str = "ann") -> list[int]:
        return [self.get(path, user).status for _ in range(times)]


@contextmanager
def on_loop(app: Any, statistics: Callable[[], Any]) -> Iterator[Served]:
    with asyncio.Runner() as runner:

        def get(method: str, path: str, given: dict[str, str]) -> Reply:
            headers = [(name.encode(), text.encode()) for name, text in {"host": "x", **given}.items()]
            reply = runner.run(call(app, http(path, method, headers=headers)))
            fields = {name.decode().lower(): value.decode() for name, value in reply.fields.items()}
            return Reply(reply.status, reply.body.decode(), fields)

        yield Served(get, statistics, runner.run, lambda scope, *incoming: runner.run(call(app, scope, *incoming)))


@contextmanager
def in_thread(app: Any, statistics: Callable[[], Any]) -> Iterator[Served]:
    def get(method: str, path: str, given: dict[str, str]) -> Reply:
        told: list[Any] = []
        environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path, "REMOTE_ADDR": "192.0.2.1"}
        environ |= {f"HTTP_{name.upper().replace('-', '_')}": text for name, text in given.items()}
        environ |= {"SERVER_NAME": "x", "SERVER_PORT": "80", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO()}
        body = app(environ, lambda status, fields, *_: told.extend((status, fields)))
        text = b"".join(body).decode()
        getattr(body, "close", lambda: None)()
        return Reply(int(told[0][:3]), text, {name.lower(): value for name, value in told[1]})

    yield Served(get, statistics, lambda found: found)


def _as_it_is(app: Any) -> Any:
    return app


def _views(face: Any) -> list[View]:
    """The routes of an application, whose views see the decisions of a face."""

    def answer(request: Any) -> Said:
        return Said(seen(face.decisions, request))

    return [View("/hello", answer), View("/search", answer, KEY)]


def _serving(made: Callable[..., Made], face: Any, serve: Any) -> Any:
    def serving(
        rules: Any, source: Any = "memory://", views: Views = (), *, around: Around = _as_it_is, **options: Any
    ) -> Any:
        app, statistics = made(views or _views(face), source, rules, **options)
        return serve(around(app), statistics)

    return serving


@contextmanager
def in_server(app: web.Application, statistics: Callable[[], Any]) -> Iterator[Served]:
    """Serve an application of aiohttp, which is no function."""

    async def ask(method: str, path: str, given: dict[str, str]) -> Reply:
        async with client.request(method, path, headers=given) as reply:
            fields = {name.lower(): value for name, value in reply.headers.items()}
            return Reply(reply.status, await reply.text(), fields)

    with asyncio.Runner() as runner:
        client = runner.run(_client(app))
        try:
            yield Served(lambda *asked: runner.run(ask(*asked)), statistics, runner.run, client)
        finally:
            runner.run(client.close())


async def _client(app: web.Application) -> Any:
    client = TestClient(TestServer(app))
    await client.start_server()
    return client


def _made_of_wsgi(views: Views, source: Any, rules: Any, **options: Any) -> Made:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [seen(wsgi.decisions, environ).encode()]

    identify = {"identify": lambda environ: {"user": environ["HTTP_X_USER"]}}
    limits = wsgi.RateLimitMiddleware(app, source, rules, **{**identify, **options})
    return limits, limits.statistics


@contextmanager
def with_django(
    rules: Any, source: Any = "memory://", views: Views = (),
    *, asynchronous: bool = False, around: Around = _as_it_is, **options: Any,
) -> Iterator[Served]:  # fmt: skip
    mine = {"URL": source} if isinstance(source, str) else {"LIMITER": source, "ASYNC_LIMITER": source}
    mine |= {name.upper(): value for name, value in options.items()}
    serve, kind = (on_loop, "async") if asynchronous else (in_thread, "sync")
    more = [f"{django.operation_names.__module__}.operation_names"]
    project = of_django.project(views or _views(django), rules, kind, more=more, **mine)  # type: ignore[arg-type]
    with project as (app, statistics), serve(around(app), statistics) as found:
        yield found
        if asynchronous:  # what is being settled is settled before the loop ends
            found.run(front(True).close())


FACES: dict[str, Any] = {
    "asgi": _serving(plain.made, asgi, on_loop),
    "fastapi": _serving(of_fastapi.made, fastapi, on_loop),
    "starlette": _serving(of_starlette.made, starlette, on_loop),
    "litestar": _serving(of_litestar.made, litestar, on_loop),
    "quart": _serving(of_quart.made, quart, on_loop),
    "aiohttp": _serving(of_aiohttp.made, aiohttp, in_server),
    "flask": _serving(of_flask.made, flask, in_thread),
    "wsgi": _serving(_made_of_wsgi, wsgi, in_thread),
    "django": with_django,
    "django-asgi": partial(with_django, asynchronous=True),
}
"""Each face of web applications: call it with rules, perhaps what makes its limiter, routes, and options."""
THREADS = ("flask", "wsgi", "django")
ON_ASGI = ("asgi", "fastapi", "starlette", "litestar", "quart")
EVERYWHERE = pytest.mark.parametrize("serving", FACES.values(), ids=FACES)
ROUTING = [each for each in FACES if each != "wsgi"]
"""Faces whose routes ask for rules."""
PEERS = ["192.0.2.1", "127.0.0.1"]
"""Who asks."""


@contextmanager
def bounded(
    face: str, law: Any, rules: Any, *views: View, clock: Any = None, is_one: bool = False, **terms: Any
) -> Iterator[tuple[Served, Any]]:
    """Serve by rules behind a concurrency limit of this law, in a middleware of its own or in one; and its limiter."""
    kind: Any = ConcurrencyLimiter if face in THREADS else AsyncConcurrencyLimiter
    limiter = kind(law) if clock is None else kind(law, clock=clock)

    def around(app: Any) -> Any:
        if face != "aiohttp":
            return (wsgi if face in THREADS else asgi).ConcurrencyLimitMiddleware(app, limiter, **terms)
        app.middlewares.insert(0, aiohttp.concurrency_limits(limiter, **terms))
        return app

    more: Any = {"concurrency": ConcurrencyLimit(limiter=limiter, **terms)} if is_one else {"around": around}
    with FACES[face](rules, *(["memory://", views] if views else []), **more) as served:
        yield served, limiter
        served.run(limiter.close())
