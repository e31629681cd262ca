"""The applications of the matrix behind real servers, and their clients."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

import httpx

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.integrations import asgi, wsgi
from batchlimit.laws import Fixed
from tests.integrations import servers
from tests.integrations.backing import Backing
from tests.integrations.clients import Clients
from tests.integrations.faces.rules import MESSAGES, RULES, VIEWS
from tests.integrations.made import View
from tests.integrations.made import django as of_django
from tests.sync.stage import ARRIVAL, until

THREADS = ("django", "django-rest", "flask")
Make = Callable[[Any], AbstractContextManager[tuple[Any, Any]]]


def _made(module: str, *more: View, **options: Any) -> Make:
    made: Any = import_module(f"tests.integrations.made.{module}").made
    return lambda limiter: nullcontext(made([*VIEWS, *more], limiter, RULES, **options))


def _project(kind: Any) -> Make:
    limiter = "ASYNC_LIMITER" if kind == "async" else "LIMITER"
    return lambda source: of_django.project(VIEWS, RULES, kind, **{limiter: source})


_plain = _made("plain", View("/chat", None), messages=MESSAGES)
SERVED: dict[str, tuple[Callable[[Any, Backing], AbstractContextManager[int]], Make]] = {
    "asgi": (servers.uvicorn, _plain),
    "asgi-hypercorn": (servers.hypercorn, _plain),
    "starlette": (servers.uvicorn, _made("starlette")),
    "fastapi": (servers.uvicorn, _made("fastapi")),
    "litestar": (servers.uvicorn, _made("litestar")),
    "quart": (servers.uvicorn, _made("quart")),
    "django-async": (servers.uvicorn, _project("async")),
    "django": (servers.waitress, _project("sync")),
    "django-rest": (servers.waitress, _project("rest")),
    "flask": (servers.waitress, _made("flask")),
    "aiohttp": (servers.aiohttp, _made("aiohttp")),
}
"""How each face is served, and what makes its application."""
HTTP = list(SERVED)
WEBSOCKETS = ("asgi", "asgi-hypercorn", "starlette", "fastapi", "litestar", "quart", "aiohttp")


class Served:
    """A server, and clients of it, one for each thread."""

    def __init__(self, face: str, port: int, backing: Backing, clients: Clients) -> None:
        self.face, self.port, self._clients = face, port, clients
        self._clock, self.left = backing.clock, backing.left

    @property
    def client(self) -> httpx.Client:
        """This thread's."""
        return self._clients.own

    def get(self, path: str, user: str = "ann", **fields: str) -> httpx.Response:
        return self.client.get(path, headers={"x-user": user, **fields})

    def statuses(self, times: int, path: str, user: str = "ann", **fields: str) -> list[int]:
        return [self.get(path, user, **fields).status_code for _ in range(times)]

    def pass_by(self, seconds: float) -> None:
        self._clock.pass_by(seconds + ARRIVAL)

    def until_left(self, key: str, wanted: int) -> None:
        """Wait for what happens in the server after the client has heard enough."""
        until(lambda: self.left(key) == wanted)


@contextmanager
def serving(face: str, url: str = "", permits: int = 0, prefix: str = "") -> Iterator[Served]:
    """Serve a face: on buckets in memory or a store, so many requests at once (0: as many as like)."""
    (serve, make), is_threaded = SERVED[face], face in THREADS
    backing = Backing([*RULES, *MESSAGES], url, prefix or f"matrix-{face}-{os.urandom(6).hex()}")
    with make(backing.make if is_threaded else backing.make_async) as (made, _):
        app: Any = made
        if permits:
            kind, limiter = (wsgi, ConcurrencyLimiter) if is_threaded else (asgi, AsyncConcurrencyLimiter)
            app = kind.ConcurrencyLimitMiddleware(made, limiter(Fixed(permits)))
        with serve(app, backing) as port, Clients(port) as clients:
            yield Served(face, port, backing, clients)
