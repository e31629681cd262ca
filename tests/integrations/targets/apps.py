"""The same routes behind each face: all but /open under rules of "0/s", so that whatever else is served has got round.

With another `QUOTA` in the environment the rules let them be served. A response of a route says which one in the
field `X-Served`. One process serves the faces of one interface; the field `X-Face` says to which one a request goes.
`MOUNT` in the environment is where Django is told that it is mounted.
"""

import logging
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from batchlimit.rules import Rule

ROUTES = ("login", "item", "api", "order")
QUOTA = os.environ.get("QUOTA", "0/s")
RULES = [
    Rule("login", QUOTA, key="login", match="/login"),
    Rule("item", QUOTA, key="item:{id}", match="/items/{id}"),
    Rule("api", QUOTA, key="api", match="/api/*"),
    Rule("order", QUOTA, key="order", match="POST /orders"),
]
STORE = "memory://"


def served(route: str, method: str) -> dict[str, str]:
    """The field that says what was served: an order is one if it was posted."""
    return {"X-Served": "open" if route == "order" and method != "POST" else route}


def _made(name: str) -> Callable[[], Any]:
    module, _, function = name.partition(":")

    @cache
    def make() -> Any:
        logging.disable()  # nobody reads what a server would say of such requests; who tests it makes no face
        return getattr(import_module(f"tests.integrations.targets.{module}"), function)()

    return make


ASGI = {
    "starlette": _made("with_starlette:starlette"),
    "fastapi": _made("with_starlette:fastapi"),
    "asgi": _made("with_starlette:asgi"),
    "litestar": _made("with_litestar:litestar"),
    "asgi-litestar": _made("with_litestar:asgi"),
    "quart": _made("with_quart:quart"),
    "asgi-quart": _made("with_quart:asgi"),
    "django-async": _made("with_django:tasks"),
}
WSGI = {
    "flask": _made("with_flask:flask"),
    "wsgi": _made("with_flask:wsgi"),
    "django": _made("with_django:threads"),
}
OWN = {"aiohttp": _made("with_aiohttp:application")}
"""It brings its own server."""
FACES = {face: face.partition("-")[0] for face in (*ASGI, *WSGI, *OWN)}
"""Which integration each of them is."""
MOUNT = os.environ.get("MOUNT", "")
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
