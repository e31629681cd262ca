"""What the servers of `restarts` serve: one limit before an application that answers at once, on WSGI and on ASGI."""

import os
from collections.abc import Iterable
from typing import Any

_URL = os.environ.get("STORE", "memory://")
_WHO = "x-worker"


def _rules() -> Any:
    from batchlimit.rules import Rule

    return [Rule("all", os.environ.get("QUOTA", "50/s"), key=os.environ.get("KEY", "all"), match="GET /asked")]


def _threaded(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("content-length", "2"), (_WHO, str(os.getpid()))])
    return [b"ok"]


async def _awaited(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    headers = [(b"content-length", b"2"), (_WHO.encode(), b"%d" % os.getpid())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


def threads() -> Any:
    """Return the application on WSGI."""
    if not _URL:  # nor is anything of ours imported then, which takes its time at a restart
        return _threaded
    from batchlimit.integrations.wsgi import RateLimitMiddleware

    return RateLimitMiddleware(_threaded, _URL, _rules(), checks=False)


def tasks() -> Any:
    """Return the application on ASGI."""
    if not _URL:
        return _awaited
    from batchlimit.integrations.asgi import RateLimitMiddleware

    return RateLimitMiddleware(_awaited, _URL, _rules(), checks=False)
