"""An application of the matrix behind a real server, in a process of its own: FACE URL PREFIX. It says its port.

Quart is behind hypercorn, which it brings along, and the others are behind uvicorn.
"""

import asyncio
import socket
import sys
from importlib import import_module
from typing import Any

import hypercorn
import hypercorn.asyncio
import uvicorn

from batchlimit import AsyncRateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.reservoir import requests
from batchlimit.rules import Rules
from tests.distance import far
from tests.integrations.faces.rules import RULES


def open_limiter() -> AsyncRateLimiter:
    return AsyncRateLimiter.from_url(
        sys.argv[2],
        Rules(RULES).quotas,
        prefix=sys.argv[3],
        deadline=30.0,
        connect_timeout=30.0,
        sizer=FixedBatch(1),
    )


def serve_by_hypercorn(app: Any, listening: socket.socket) -> None:
    config = hypercorn.Config()
    config.bind, config.graceful_timeout = [f"fd://{listening.fileno()}"], 10
    config.keep_alive_timeout = 1000
    asyncio.run(hypercorn.asyncio.serve(app, config))


def serve_by_uvicorn(app: Any, listening: socket.socket) -> None:
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=10, timeout_keep_alive=1000)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    setattr(requests, "Ask", far)  # noqa: B010
    app = import_module(f"tests.integrations.faces.with_{sys.argv[1]}").build(open_limiter)
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    serve = serve_by_hypercorn if sys.argv[1] == "quart" else serve_by_uvicorn
    serve(app, listening)
