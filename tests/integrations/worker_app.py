"""Applications as servers with workers import them; that for threads asks the store before any fork."""

import json
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.asgi import RateLimitMiddleware as ASGIMiddleware
from batchlimit.integrations.wsgi import RateLimitMiddleware as WSGIMiddleware
from batchlimit.rules import Rule, Rules

FEW = 10
RULES = Rules(
    [
        Rule("plenty", "1000000/s", key="plenty", match="/plenty"),
        Rule("few", f"{FEW}/day", key="few", match="/few"),
        Rule("import", "1000/s", key="import"),
    ]
)
IMPORTED = os.getpid()
_URL = os.environ.get("WORKERS_URL", "memory://")
_OPTIONS: Any = {"prefix": os.environ.get("WORKERS_PREFIX", "workers"), "deadline": 30.0, "connect_timeout": 30.0}


def state(word: str) -> bytes:
    """What this process is, and by which sockets it speaks to a store."""
    told = {"word": word, "pid": os.getpid(), "imported": IMPORTED, "connections": sorted(connections())}
    return json.dumps(told).encode()


def connections() -> Iterator[int]:
    """The numbers of the sockets that lead to a store; processes that share a connection have the same."""
    for descriptor in range(256):
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                if str(connection.getpeername()).startswith("/tmp/bl-"):
                    yield os.fstat(descriptor).st_ino
        except OSError:
            continue


def threaded(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "application/json"), ("Connection", "close")])
    return [state("threaded")]


def answering(word: str) -> Any:
    async def tasks(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": state(word)})

    return tasks


def limited(word: str) -> ASGIMiddleware:
    return ASGIMiddleware(answering(word), AsyncRateLimiter.from_url(_URL, RULES.quotas, **_OPTIONS), RULES)


def by_url(word: str) -> ASGIMiddleware:
    return ASGIMiddleware(answering(word), _URL, RULES)


def limited_threads() -> WSGIMiddleware:
    limiter = RateLimiter.from_url(_URL, RULES.quotas, **_OPTIONS)
    assert limiter.try_acquire("import")
    return WSGIMiddleware(threaded, limiter, RULES)


def by_url_threads() -> WSGIMiddleware:
    return WSGIMiddleware(threaded, _URL, RULES)
