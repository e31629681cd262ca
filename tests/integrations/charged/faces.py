"""Each face: how it is made, how it is served, and how the test client of its framework asks it."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import django.test
import fastapi.testclient
import litestar.testing
import starlette.testclient
from aiohttp.test_utils import TestClient, TestServer

from tests.integrations.charged import asgi_faces, client, other_faces
from tests.integrations.charged.behind import Behind

Made = tuple[Any, Callable[[], Any]]
"""An application, and what returns its statistics."""


class Face(NamedTuple):
    """A face of web applications.

    Attributes:
        make: makes an application behind rules; some within a context.
        serve: serves it.
        ask: asks it for a path as a user, by the test client of the framework (None: it has none).
        lacks: the cases for which it has nothing.
        asks: whether its routes can ask for a rule.
    """

    make: Callable[[Behind], Any]
    serve: Callable[[Any, Behind], AbstractContextManager[client.Client]]
    ask: Callable[[Any, str, str], int] | None
    lacks: tuple[str, ...] = ()
    asks: bool = True

    def made(self, behind: Behind) -> AbstractContextManager[Made]:
        """Make an application behind rules."""
        found = self.make(behind)
        return nullcontext(found) if isinstance(found, tuple) else found


def _with(kind: Callable[..., Any]) -> Callable[[Any, str, str], int]:
    def ask(app: Any, path: str, user: str) -> int:
        with kind(app) as here:
            return int(here.get(path, headers={"x-user": user}).status_code)

    return ask


def _in_flask(app: Any, path: str, user: str) -> int:
    return int(app.test_client().get(path, headers={"x-user": user}).status_code)


def _in_quart(app: Any, path: str, user: str) -> int:
    async def ask() -> int:
        async with app.test_app() as here:
            reply = await here.test_client().get(path, headers={"x-user": user})
            return int(reply.status_code)

    return asyncio.run(ask())


def _in_aiohttp(app: Any, path: str, user: str) -> int:
    async def ask() -> int:
        async with TestClient(TestServer(app)) as here, here.get(path, headers={"x-user": user}) as reply:
            return reply.status

    return asyncio.run(ask())


def _in_django(app: Any, path: str, user: str) -> int:
    return int(django.test.Client().get(path, headers={"x-user": user}).status_code)


def _in_async_django(app: Any, path: str, user: str) -> int:
    async def ask() -> int:
        reply = await django.test.AsyncClient().get(path, headers={"x-user": user})
        return int(reply.status_code)

    return asyncio.run(ask())


_NO_SOCKETS = ("ws",)
FACES = {
    "FastAPI": Face(asgi_faces.with_fastapi, client.asgi, _with(fastapi.testclient.TestClient)),
    "Starlette": Face(asgi_faces.with_starlette, client.asgi, _with(starlette.testclient.TestClient)),
    "Litestar": Face(asgi_faces.with_litestar, client.asgi, _with(litestar.testing.TestClient)),
    "Quart": Face(asgi_faces.with_quart, client.asgi, _in_quart),
    "ASGI": Face(asgi_faces.with_asgi, client.asgi, _with(starlette.testclient.TestClient)),
    "aiohttp": Face(other_faces.with_aiohttp, client.aiohttp, _in_aiohttp, ("later",)),
    "Flask": Face(other_faces.with_flask, client.wsgi, _in_flask, _NO_SOCKETS),
    "WSGI": Face(other_faces.with_wsgi, client.wsgi, None, _NO_SOCKETS, asks=False),
    "Django": Face(other_faces.with_django, client.wsgi, _in_django, (*_NO_SOCKETS, "later")),
    "Django, ASGI": Face(
        other_faces.with_django_asgi, client.asgi, _in_async_django, (*_NO_SOCKETS, "later", "static")
    ),
}
