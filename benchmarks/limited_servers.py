"""Servers of FastAPI and gRPC whose every call takes a slot of a backend, limited by us, by themselves or by hand."""

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio
import uvicorn
from fastapi import FastAPI, Response

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.integrations.asgi import ConcurrencyLimitMiddleware
from batchlimit.integrations.grpc import AsyncConcurrencyInterceptor, ConcurrencyInterceptor
from benchmarks.slots import Slots

KNEE, OWN, SEMAPHORE = WAYS = "Knee", "the server's own", "semaphore"
"""What limits a server: our default law, `--limit-concurrency` or `maximum_concurrent_rpcs`, a semaphore of its own."""
_THREADS = 50


@dataclass(frozen=True, slots=True)
class Setup:
    """One server of several before a backend; `most` is the limit that somebody chose, and Knee does not know."""

    kind: str
    way: str
    most: int
    backend: int
    """The port."""


def serve(setup: Setup, parent: Connection) -> None:
    """Serve until the process is ended; the port goes to the parent first, and the limit whenever it asks."""
    if setup.kind == "grpc threads":
        _serve_threads(setup, parent)
    else:
        asyncio.run(_fastapi(setup, parent) if setup.kind == "FastAPI" else _grpc_aio(setup, parent))


class _Semaphore:
    """What one writes by hand: whoever finds it locked is refused."""

    def __init__(self, setup: Setup) -> None:
        self._slots, self._gate = Slots(setup.backend), asyncio.Semaphore(setup.most)
        self._is_limited = setup.way == SEMAPHORE

    async def take(self) -> bool:
        """Return whether the call was let in, when it has been served."""
        if not self._is_limited:
            await self._slots.take()
            return True
        if self._gate.locked():
            return False
        async with self._gate:
            await self._slots.take()
        return True


async def _tell(parent: Connection, limit: Callable[[], int]) -> None:
    with suppress(EOFError):
        while await asyncio.to_thread(parent.recv):
            parent.send(limit())


async def _fastapi(setup: Setup, parent: Connection) -> None:
    app, slots = FastAPI(), _Semaphore(setup)

    @app.get("/")
    async def call() -> Response:
        return Response(status_code=200 if await slots.take() else 503)

    async with AsyncConcurrencyLimiter() as limiter:
        if setup.way == KNEE:
            app.add_middleware(ConcurrencyLimitMiddleware, limiter=limiter)
        # uvicorn counts the connection of the call that it looks at, too.
        own = setup.most + 1 if setup.way == OWN else None
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", limit_concurrency=own))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.01)
        parent.send(str(server.servers[0].sockets[0].getsockname()[1]))
        await _tell(parent, lambda: limiter.limit if setup.way == KNEE else setup.most)
        server.should_exit = True
        await serving


async def _grpc_aio(setup: Setup, parent: Connection) -> None:
    slots = _Semaphore(setup)

    async def call(request: bytes, context: Any) -> bytes:
        if not await slots.take():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "")
        return request

    async with AsyncConcurrencyLimiter() as limiter:
        server = grpc.aio.server(
            handlers=[_Handler(call)],
            interceptors=[AsyncConcurrencyInterceptor(limiter)] if setup.way == KNEE else [],
            maximum_concurrent_rpcs=setup.most if setup.way == OWN else None,
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        parent.send(str(port))
        await _tell(parent, lambda: limiter.limit if setup.way == KNEE else setup.most)
        await server.stop(None)


class _Handler(grpc.GenericRpcHandler):
    """Any method is this function."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._call)


def _serve_threads(setup: Setup, parent: Connection) -> None:
    own, gate = threading.local(), threading.Semaphore(setup.most)

    def take() -> None:
        if not hasattr(own, "socket"):
            own.socket = socket.create_connection(("127.0.0.1", setup.backend))
        own.socket.sendall(b"?")
        own.socket.recv(1)

    def call(request: bytes, context: grpc.ServicerContext) -> bytes:
        if setup.way != SEMAPHORE:
            take()
        elif gate.acquire(blocking=False):
            try:
                take()
            finally:
                gate.release()
        else:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "")
        return request

    with ConcurrencyLimiter() as limiter:
        server = grpc.server(
            ThreadPoolExecutor(_THREADS),
            handlers=[_Handler(call)],
            interceptors=[ConcurrencyInterceptor(limiter)] if setup.way == KNEE else [],
            maximum_concurrent_rpcs=setup.most if setup.way == OWN else None,
        )
        parent.send(str(server.add_insecure_port("127.0.0.1:0")))
        server.start()
        with suppress(EOFError):
            while parent.recv():
                parent.send(limiter.limit if setup.way == KNEE else setup.most)
        server.stop(None)
