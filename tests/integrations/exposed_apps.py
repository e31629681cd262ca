"""Applications that count what they serve, in Starlette (`asgi`) and in Flask (`wsgi`), each behind the middleware."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.address import TrustedProxies
from batchlimit.integrations.asgi import RateLimitMiddleware as ASGIMiddleware
from batchlimit.integrations.wsgi import RateLimitMiddleware as WSGIMiddleware
from batchlimit.rules import Rule, Rules

RULES = Rules(
    [
        Rule("limited", "100000/day", key="limited", match=["/limited", "/items/{id}"]),
        Rule("client", "3/day", key="client:{ip}", match="/client"),
        Rule("body", "1000/day", key="body", match="/body", cost=10, charge=lambda response: 1),
        Rule("endless", "1000/day", key="endless", match="/endless", cost=10, charge=lambda response: 1),
        Rule("raises", "1000/day", key="raises", match="/raises/*", cost=10, charge=lambda response: 1),
    ]
)
PROXIES = TrustedProxies(["127.0.0.1", "10.0.0.0/8"])
_OPTIONS: Any = {"sizer": FixedBatch(1)}
served = 0


def note() -> str:
    global served  # noqa: PLW0603  one process serves all
    served += 1
    return "hello"


async def hello(request: Request) -> Response:
    return PlainTextResponse(note())


async def body(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def endless(request: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0)

    return StreamingResponse(parts())


async def raises(request: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    if request.path_params["when"] == "amid":
        return StreamingResponse(parts())
    raise ZeroDivisionError


async def told(request: Request) -> Response:
    charged = asgi.statistics().rules["limited"].acquired
    limiter: Any = asgi.enforcer._limiter()
    left = {name: (await limiter.peek(name)).remaining for name in ("body", "endless", "raises")}
    return JSONResponse({"served": served, "charged": charged, "left": left})


_ALL = ["GET", "POST", "HEAD", "OPTIONS"]
asgi = ASGIMiddleware(
    Starlette(
        routes=[
            Route("/limited", hello, methods=_ALL),
            Route("/items/{id}", hello),
            Route("/client", hello),
            Route("/body", body, methods=["POST"]),
            Route("/endless", endless),
            Route("/raises/{when}", raises),
            Route("/told", told),
        ]
    ),
    lambda: AsyncRateLimiter.from_url("memory://", RULES.quotas, **_OPTIONS),
    RULES,
    proxies=PROXIES,
)

threaded = flask.Flask(__name__)
limiter = RateLimiter.from_url("memory://", RULES.quotas, **_OPTIONS)
wsgi = WSGIMiddleware(threaded.wsgi_app, limiter, RULES, proxies=PROXIES)


@threaded.route("/limited", methods=_ALL, provide_automatic_options=False)
@threaded.get("/client")
def hello_threads() -> str:
    return note()


@threaded.get("/items/<id>")
def item_threads(id: str) -> str:  # noqa: A002
    return note()


@threaded.post("/body")
def body_threads() -> str:
    return str(len(flask.request.get_data()))


@threaded.get("/endless")
def endless_threads() -> flask.Response:
    def parts() -> Iterator[bytes]:
        while True:
            yield b"x" * 65536

    return flask.Response(parts())


@threaded.get("/raises/<when>")
def raises_threads(when: str) -> flask.Response:
    def parts() -> Iterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    if when == "amid":
        return flask.Response(parts())
    raise ZeroDivisionError


@threaded.get("/told")
def told_threads() -> flask.Response:
    charged = wsgi.statistics().rules["limited"].acquired
    left = {name: limiter.peek(name).remaining for name in ("body", "endless", "raises")}
    return flask.jsonify(served=served, charged=charged, left=left)
