"""A gRPC server on asyncio in a process of its own, with Gitaly's limits by call, repository and user."""

import asyncio
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio

from batchlimit import Queue
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedStatistics
from batchlimit.integrations.grpc import AsyncConcurrencyInterceptor
from benchmarks.shared_permits.log import Hold

HTTP = "/gitaly.SmartHTTPService/PostUploadPackWithSidechannel"
SSH = "/gitaly.SSHService/SSHUploadPackWithSidechannel"
OF_A_REPOSITORY = Keyed(20, queue=Queue(10, max_wait=1.0))
LIMITS: dict[str, Keyed] = {
    "user:*": Keyed(15, queue=Queue(200, max_wait=60.0)),
    f"{HTTP} repo:*": OF_A_REPOSITORY,
    f"{SSH} repo:*": OF_A_REPOSITORY,
    HTTP: Keyed(60, queue=Queue(100, max_wait=1.0)),
    SSH: Keyed(60, queue=Queue(100, max_wait=1.0)),
}
"""By pattern; narrow ones first, because calls acquire their keys in this order."""


def keys(details: grpc.HandlerCallDetails) -> list[str]:
    """Return what a call counts against: its user, its method for this repository, its method."""
    told = {name: str(value) for name, value in details.invocation_metadata or ()}
    return [f"user:{told['user']}", f"{details.method} repo:{told['repo']}", details.method]


@dataclass(frozen=True, slots=True)
class Served:
    """What the server tells in the end: which keys were held from when to when, and what its limiter counted."""

    holds: dict[str, list[Hold]]
    statistics: KeyedStatistics


def serve(parent: Connection) -> None:
    """Serve until the parent asks what happened, and tell it; the address goes to it first."""
    asyncio.run(_serve(parent))


async def _serve(parent: Connection) -> None:
    async with AsyncKeyedConcurrencyLimiter(LIMITS) as limiter:
        work = _Work()
        server = grpc.aio.server(handlers=[work], interceptors=[AsyncConcurrencyInterceptor(limiter, key=keys)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        parent.send(f"127.0.0.1:{port}")
        await asyncio.to_thread(parent.recv)
        await server.stop(10.0)
        parent.send(Served(work.holds, limiter.statistics()))


class _Work(grpc.GenericRpcHandler):
    """Every method takes as long as its caller says."""

    def __init__(self) -> None:
        self.holds: dict[str, list[Hold]] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        named = keys(handler_call_details)

        async def work(request: bytes, _context: object) -> bytes:
            start = time.monotonic_ns()
            try:
                await asyncio.sleep(float(request))
            finally:
                hold = Hold(start, time.monotonic_ns())
                for key in named:
                    self.holds.setdefault(key, []).append(hold)
            return b""

        return grpc.unary_unary_rpc_method_handler(work)
