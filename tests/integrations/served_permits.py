"""Exports behind uvicorn, at most LIMIT of a user at once in the fleet: python -m ... URL PREFIX. It says its port."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from batchlimit.integrations.asgi import ConcurrencyLimitMiddleware
from batchlimit.shared import AsyncSharedConcurrencyLimiter
from tests.listening import listening

LIMIT = 3
ROOT = Path(__file__).parents[2]


async def export(request: Request) -> JSONResponse:
    begin = time.monotonic_ns()
    await asyncio.sleep(0.005)
    return JSONResponse({"process": os.getpid(), "begin": begin, "end": time.monotonic_ns()})


def of_user(scope: Any) -> str:
    return f"export:{dict(scope['headers'])[b'x-user'].decode('latin-1')}"


@contextlib.contextmanager
def serving(url: str, prefix: str) -> Iterator[int]:
    """Run this module in a process of its own; its port."""
    command = [sys.executable, "-m", "tests.integrations.served_permits", url, prefix]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


if __name__ == "__main__":
    limiter = AsyncSharedConcurrencyLimiter.from_url(
        sys.argv[1], {"export:*": LIMIT}, prefix=sys.argv[2], deadline=30.0, connect_timeout=30.0
    )
    exports = Starlette(routes=[Route("/export", export)])
    application = ConcurrencyLimitMiddleware(exports, limiter, key=of_user, timeout=60.0)
    listener = listening()
    os.write(1, b"%d\n" % listener.getsockname()[1])
    uvicorn.Server(uvicorn.Config(application, log_level="error")).run(sockets=[listener])
