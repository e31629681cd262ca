"""The same routes behind each face: all but /open under rules of `QUOTA`, "0/s" unless the environment has another.

A response says in `X-Served` which route it is of; the field `X-Face` says to which face of this process it goes.
"""

import logging
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from batchlimit.integrations.address import TrustedProxies
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.rules import Rule
from tests.integrations.made import Said, View

ROUTES = ("login", "item", "mounted", "order")
QUOTA = os.environ.get("QUOTA", "0/s")
RULES = [
    Rule("login", QUOTA, key="login", match="/login"),
    Rule("item", QUOTA, key="item:{id}", match="/items/{id}"),
    Rule("mounted", QUOTA, key="mounted", match="/mounted/*"),
    Rule("order", QUOTA, key="order", match="POST /orders"),
    Rule("client", "3/day", key="client:{ip}", match="/client"),
]
STORE = "memory://"
PROXIES = TrustedProxies(["127.0.0.1", "10.0.0.0/8"])


def _view(path: str, route: str, *methods: str, **more: Any) -> View:
    """A route whose responses say in a field what was served: an order is one if it was posted."""

    def answer(request: Any, **parameters: Any) -> Said:
        return Said("here", fields={"X-Served": "open" if route == "order" and request.method != "POST" else route})

    return View(path, answer, methods=methods or ("GET",), **more)


VIEWS = [
    _view("/open", "open"),
    _view("/login", "login", "GET", "POST", "OPTIONS"),
    _view("/items/{id}", "item"),
    _view("/", "mounted", within="mounted"),
    _view("/{rest:path}", "mounted", "GET", "POST", within="mounted"),
    _view("/orders", "order", "GET", "POST"),
]
MOUNT = os.environ.get("MOUNT", "")


def _made(module: str, how: str = "made", **options: Any) -> Callable[[], Any]:
    @cache
    def make() -> Any:
        """It trusts the proxy on this machine."""
        logging.disable()  # nobody reads what a server would say of such requests; who tests it makes no face
        made: Any = getattr(import_module(f"tests.integrations.made.{module}"), how)
        if how == "application":
            return RateLimitMiddleware(made(VIEWS), STORE, RULES, proxies=PROXIES)
        return made(VIEWS, STORE, RULES, proxies=PROXIES, **options)[0]

    return make


def _django(kind: str) -> Callable[[], Any]:
    return _made("django", kind=kind, FORCE_SCRIPT_NAME=MOUNT or None)


ASGI = {
    "starlette": _made("starlette"),
    "fastapi": _made("fastapi"),
    "asgi": _made("starlette", "made_around"),
    "litestar": _made("litestar"),
    "asgi-litestar": _made("litestar", "application"),
    "quart": _made("quart"),
    "asgi-quart": _made("quart", "application"),
    "django-async": _django("async"),
}
WSGI = {"flask": _made("flask"), "wsgi": _made("flask", "made_around"), "django": _django("sync")}
OWN = {"aiohttp": _made("aiohttp")}
"""It brings its own server."""
FACES = {face: face.partition("-")[0] for face in (*ASGI, *WSGI, *OWN)}
"""Which integration each of them is."""
if "MOUNT" in os.environ:  # in a server, and not where the tests run
    logging.disable()  # nobody reads what the servers would say of such requests


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    face = dict(scope["headers"])[b"x-face"].decode()
    await ASGI[face]()(scope, receive, send)


def wsgi(environ: Any, start_response: Any) -> Any:
    return WSGI[environ["HTTP_X_FACE"]]()(environ, start_response)
