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
from django.test import AsyncClient, Client
from django.test.utils import override_settings

from batchlimit.integrations import aiohttp, asgi, django, fastapi, flask, litestar, quart, starlette, wsgi
from batchlimit.integrations.django.configuration import front
from tests.integrations import django_site
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
    """An application that is called: by `call` with a scope and with messages, where it is one of ASGI."""

    def __init__(self, get: Callable[[str, dict[str, str]], Reply], statistics: Any, call: Any = None) -> None:
        self._get, self.statistics, self.call = get, statistics, call

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

        yield Served(get, statistics, lambda scope, *incoming: runner.run(call(app, scope, *incoming)))


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


def _views(face: Any) -> list[View]:
    """The routes of an application, whose views see the decisions of a face."""

    def answer(request: Any) -> Said:
        return Said(seen(face.decisions, request))

    return [View("/hello", answer), View("/search", answer, KEY)]


def _in_tasks(made: Callable[..., Made], face: Any) -> Any:
    def serving(rules: Any, source: Any = "memory://", views: Views = (), **options: Any) -> Any:
        return on_loop(*made(views or _views(face), source, rules, **options))

    return serving


@contextmanager
def with_aiohttp(rules: Any, source: Any = "memory://", views: Views = (), **options: Any) -> Iterator[Served]:
    app, statistics = of_aiohttp.made(views or _views(aiohttp), source, rules, **options)
    with asyncio.Runner() as runner:
        client = runner.run(_client(app))

        async def ask(path: str, given: dict[str, str]) -> Reply:
            async with client.get(path, headers=given) as reply:
                fields = {name.lower(): value for name, value in reply.headers.items()}
                return Reply(reply.status, await reply.text(), fields)

        try:
            yield Served(lambda path, given: runner.run(ask(path, given)), statistics)
        finally:
            runner.run(client.close())


async def _client(app: web.Application) -> Any:
    client = TestClient(TestServer(app))
    await client.start_server()
    return client


def with_flask(rules: Any, source: Any = "memory://", views: Views = (), **options: Any) -> Any:
    return in_thread(*of_flask.made(views or _views(flask), source, rules, **options))


def with_wsgi(rules: Any, source: Any = "memory://", **options: Any) -> Any:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [seen(wsgi.decisions, environ).encode()]

    identify = {"identify": lambda environ: {"user": environ["HTTP_X_USER"]}}
    limits = wsgi.RateLimitMiddleware(app, source, rules, **{**identify, **options})
    return in_thread(limits, limits.statistics)


@contextmanager
def with_django(
    rules: Any, source: Any = "memory://", views: Views = (), *, asynchronous: bool = False, **options: Any
) -> Iterator[Served]:
    mine = {"URL": source} if isinstance(source, str) else {"LIMITER": source, "ASYNC_LIMITER": source}
    mine |= {"RULES": rules, "IDENTIFY": django_site.who}
    mine |= {name.upper(): value for name, value in options.items()}
    routes = of_django.urls(views or _views(django), "async" if asynchronous else "sync")
    with override_settings(BATCHLIMIT=mine, ROOT_URLCONF=routes), asyncio.Runner() as runner:
        client: Any = (AsyncClient if asynchronous else Client)(raise_request_exception=False)

        async def ask(path: str, given: dict[str, str]) -> tuple[Any, bytes]:
            reply = await client.get(path, headers=given)
            return reply, b"".join([part async for part in reply]) if reply.streaming else reply.content

        def get(path: str, given: dict[str, str]) -> Reply:
            if asynchronous:
                reply, body = runner.run(ask(path, given))
            else:
                body = (reply := client.get(path, headers=given)).getvalue()
            return Reply(reply.status_code, body.decode(), {k.lower(): v for k, v in reply.headers.items()})

        yield Served(get, django.middleware.statistics)
        if asynchronous:  # what is being settled is settled before the loop ends
            runner.run(front(True).close())


FACES: dict[str, Any] = {
    "asgi": _in_tasks(plain.made, asgi),
    "fastapi": _in_tasks(of_fastapi.made, fastapi),
    "starlette": _in_tasks(of_starlette.made, starlette),
    "litestar": _in_tasks(of_litestar.made, litestar),
    "quart": _in_tasks(of_quart.made, quart),
    "aiohttp": with_aiohttp,
    "flask": with_flask,
    "wsgi": with_wsgi,
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
