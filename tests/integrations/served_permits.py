"""Exports behind uvicorn, at most LIMIT of a user at once in the fleet, on the store that the environment names."""

import asyncio
import os
import time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from batchlimit.integrations.asgi import ConcurrencyLimitMiddleware
from batchlimit.shared import AsyncSharedConcurrencyLimiter

LIMIT = 3


async def export(request: Request) -> JSONResponse:
    begin = time.monotonic_ns()
    await asyncio.sleep(0.005)
    return JSONResponse({"process": os.getpid(), "begin": begin, "end": time.monotonic_ns()})


def of_user(scope: Any) -> str:
    return f"export:{dict(scope['headers'])[b'x-user'].decode('latin-1')}"


def application() -> ConcurrencyLimitMiddleware:
    options: Any = {"prefix": os.environ["PREFIX"], "deadline": 30.0, "connect_timeout": 30.0}
    limiter = AsyncSharedConcurrencyLimiter.from_url(os.environ["STORE"], {"export:*": LIMIT}, **options)
    exports = Starlette(routes=[Route("/export", export)])
    return ConcurrencyLimitMiddleware(exports, limiter, key=of_user, timeout=60.0)
