"""A gRPC server on asyncio in a process of its own, whose every call needs one of so many workers for a while."""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio

from batchlimit import AsyncConcurrencyLimiter
from batchlimit.concurrency import Law
from batchlimit.concurrency.laws import Fixed, Gradient2, Knee, Vegas, Windowed
from batchlimit.integrations.grpc import AsyncConcurrencyInterceptor


@dataclass(frozen=True, slots=True)
class Backend:
    """So many `workers`, who take a call after another: `mean_s` for one, lognormal with this `sigma` of the logarithm.

    When its client has disconnected, a worker goes on with a call, as a database does; unless the
    backend `recalls` it.
    """

    workers: int = 10
    mean_s: float = 0.05
    sigma: float = 0.5
    recalls: bool = False

    @property
    def capacity(self) -> float:
        """Calls a second."""
        return self.workers / self.mean_s

    def service(self, dice: random.Random) -> float:
        """Draw how long one takes, in seconds."""
        return dice.lognormvariate(math.log(self.mean_s) - self.sigma**2 / 2, self.sigma)


def laws(workers: int) -> dict[str, Callable[[], Law]]:
    """All that the server may be limited by."""
    return {
        "knee": Knee,
        "fixed": lambda: Fixed(workers),
        "fixed-2c": lambda: Fixed(2 * workers),
        "vegas": lambda: Windowed(Vegas()),
        "gradient2": lambda: Windowed(Gradient2()),
    }


def serve(backend: Backend, law: str | None, parent: Connection) -> None:
    """Serve, limited or not, until the parent asks what the limit is; the address goes to it first."""
    asyncio.run(_serve(backend, law, parent))


async def _serve(backend: Backend, law: str | None, parent: Connection) -> None:
    limiter = AsyncConcurrencyLimiter(laws(backend.workers)[law]()) if law else None
    interceptors = [AsyncConcurrencyInterceptor(limiter)] if limiter else []
    server = grpc.aio.server(handlers=[_Workers(backend)], interceptors=interceptors)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    parent.send(f"127.0.0.1:{port}")
    await asyncio.to_thread(parent.recv)
    parent.send(limiter.limit if limiter else None)
    await server.wait_for_termination()


class _Workers(grpc.GenericRpcHandler):
    """One method, of whatever name: it takes a worker."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._free = asyncio.Semaphore(backend.workers)
        self._dice = random.Random(1)
        self._under_way: set[asyncio.Task[None]] = set()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._call)

    async def _call(self, request: bytes, context: object) -> bytes:
        work = asyncio.create_task(self._work())
        self._under_way.add(work)
        work.add_done_callback(self._under_way.discard)
        await (work if self._backend.recalls else asyncio.shield(work))
        return request

    async def _work(self) -> None:
        async with self._free:
            await asyncio.sleep(self._backend.service(self._dice))
