"""Each face: how it is made, how it is served, and how the test client of its framework asks it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import django.test
import fastapi.testclient
import litestar.testing
import starlette.testclient
from aiohttp.test_utils import TestClient, TestServer

from batchlimit.integrations.django.configuration import front
from tests.integrations import servers
from tests.integrations.charged.behind import KEY, OFF_KEY, Behind
from tests.integrations.made import Made, View, fails, says
from tests.integrations.made import aiohttp as of_aiohttp
from tests.integrations.made import django as of_django
from tests.integrations.made import fastapi as of_fastapi
from tests.integrations.made import flask as of_flask
from tests.integrations.made import litestar as of_litestar
from tests.integrations.made import quart as of_quart
from tests.integrations.made import starlette as of_starlette

FILES = str(Path(__file__).parent)
"""What is served as static files."""
ITEM = says("item")
VIEWS = [
    View("/item", ITEM, KEY),
    View("/form", ITEM, KEY, methods=("POST",)),
    View("/folder/", ITEM, KEY),
    View("/off", ITEM, OFF_KEY),
    View("/item", ITEM, KEY, within="mounted"),
    View("/moved", says("", 302, fields={"location": "/item"}), KEY),
    View("/same", says("", 304), KEY),
    View("/broken", fails, KEY),
    View("/later", says("later", later=True), KEY),
    View("/stream", says("", stream="parts"), KEY),
    View("/endless", says("", stream="endless"), KEY),
    View("/ws", None, KEY),
]


def _made(made: Callable[..., Made], *, is_threaded: bool = False) -> Callable[[Behind], Made]:
    def of(behind: Behind) -> Made:
        if is_threaded:
            return made(VIEWS, behind.make, behind.rules, files=FILES)
        return made(VIEWS, behind.make_async, behind.rules, files=FILES, messages=behind.messages)

    return of


@contextmanager
def _project(behind: Behind, *, is_threaded: bool) -> Iterator[Made]:
    limiters: Any = {"LIMITER": behind.make, "ASYNC_LIMITER": behind.make_async}
    more = ["django.middleware.common.CommonMiddleware"]
    if not is_threaded:
        behind.closing.append(lambda: front(True).close())
    with of_django.project(
        VIEWS, behind.rules, "sync" if is_threaded else "async", files=FILES, more=more, **limiters
    ) as found:
        yield found


class Face(NamedTuple):
    """A face: what makes it, serves it, and asks it by the test client of its framework; which cases it lacks."""

    make: Callable[[Behind], Any]
    serve: Callable[[Any, Behind], AbstractContextManager[int]]
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
    "FastAPI": Face(_made(of_fastapi.made), servers.uvicorn, _with(fastapi.testclient.TestClient)),
    "Starlette": Face(_made(of_starlette.made), servers.uvicorn, _with(starlette.testclient.TestClient)),
    "Litestar": Face(_made(of_litestar.made), servers.uvicorn, _with(litestar.testing.TestClient)),
    "Quart": Face(_made(of_quart.made), servers.uvicorn, _in_quart),
    "ASGI": Face(_made(of_starlette.made_around), servers.uvicorn, _with(starlette.testclient.TestClient)),
    "aiohttp": Face(_made(of_aiohttp.made), servers.aiohttp, _in_aiohttp, ("later",)),
    "Flask": Face(_made(of_flask.made, is_threaded=True), servers.werkzeug, _in_flask, _NO_SOCKETS),
    "WSGI": Face(_made(of_flask.made_around, is_threaded=True), servers.werkzeug, None, _NO_SOCKETS, asks=False),
    "Django": Face(partial(_project, is_threaded=True), servers.werkzeug, _in_django, (*_NO_SOCKETS, "later")),
    "Django, ASGI": Face(
        partial(_project, is_threaded=False), servers.uvicorn, _in_async_django, (*_NO_SOCKETS, "later", "static")
    ),
}
