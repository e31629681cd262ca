"""What a refused call costs a gRPC server, by a limiter of ours and by grpc's own limit: processor time of the server.

    python -m benchmarks.grpc_refusals [--calls 200] [--rounds 5] [--starts 8]

The server is a process of its own, which does nothing else. One call is under way and fills the limit. Then calls come
one after the other, and all are refused with RESOURCE_EXHAUSTED. Beside them, calls that are let in and do nothing; and
calls that are refused by an interceptor that does nothing else. grpcio rejects a call by its own limit in one batch. An
interceptor cannot: its refusals take two.

Servers take turns, round by round, and the quickest round counts. A server may be a fifth slower than another of its
kind for as long as it lives. So all are started anew, several times; each figure and each ratio is the median of these.
"""

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.integrations.grpc import AsyncConcurrencyInterceptor, ConcurrencyInterceptor
from batchlimit.integrations.grpc.answer import REASON, CallRefusal
from batchlimit.integrations.grpc.queued import refusing
from batchlimit.integrations.grpc.serving import refusing_async
from batchlimit.laws import Fixed
from benchmarks.markdown import table

_SERVICE = "refusals.Service"
KINDS = "let in", "refused by batchlimit", "refused by grpc", "refused by a bare interceptor"


def _handlers(noop: Callable[..., Any], hold: Callable[..., Any]) -> tuple[grpc.GenericRpcHandler, ...]:
    """Two methods of bytes: one answers at once, one when it is told to."""
    methods: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(each) for name, each in (("Noop", noop), ("Hold", hold))
    }
    return (grpc.method_handlers_generic_handler(_SERVICE, methods),)


class _Bare(grpc.ServerInterceptor):
    """Refuses all but the call that holds, in the thread that asks, and does nothing else."""

    def __init__(self) -> None:
        self._handler = refusing(CallRefusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "refused", ((REASON, "limit"),)))

    def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        return continuation(details) if details.method.endswith("Hold") else self._handler


class _AsyncBare(grpc.aio.ServerInterceptor):
    def __init__(self) -> None:
        self._handler = refusing_async(CallRefusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "refused", ((REASON, "limit"),)))

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        return await continuation(details) if details.method.endswith("Hold") else self._handler


def serve(link: Connection, api: str, kind: str) -> None:
    """Serve in this process; say the port, then the processor time whenever somebody asks."""
    (asyncio.run(_serve_tasks(link, kind)) if api == "asyncio" else _serve_threads(link, kind))


def _serve_threads(link: Connection, kind: str) -> None:
    over = threading.Event()

    def hold(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        over.wait()
        return b""

    own = 1 if kind == KINDS[2] else None
    limiter = ConcurrencyLimiter(Fixed(1 if kind == KINDS[1] else 100))
    interceptors: list[Any] = [] if own else [_Bare() if kind == KINDS[3] else ConcurrencyInterceptor(limiter)]
    server = grpc.server(ThreadPoolExecutor(4), interceptors=interceptors, maximum_concurrent_rpcs=own)
    server.add_generic_rpc_handlers(_handlers(lambda _request, _context: b"", hold))
    link.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    while link.recv():
        link.send(time.process_time())
    over.set()
    server.stop(0).wait()
    limiter.close()


async def _serve_tasks(link: Connection, kind: str) -> None:
    over = asyncio.Event()

    async def noop(_request: bytes, _context: Any) -> bytes:
        return b""

    async def hold(_request: bytes, _context: Any) -> bytes:
        await over.wait()
        return b""

    own = 1 if kind == KINDS[2] else None
    limiter = AsyncConcurrencyLimiter(Fixed(1 if kind == KINDS[1] else 100))
    interceptors: list[Any] = (
        [] if own else [_AsyncBare() if kind == KINDS[3] else AsyncConcurrencyInterceptor(limiter)]
    )
    server = grpc.aio.server(interceptors=interceptors, maximum_concurrent_rpcs=own)
    server.add_generic_rpc_handlers(_handlers(noop, hold))
    link.send(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    while await asyncio.to_thread(link.recv):
        link.send(time.process_time())
    over.set()
    await server.stop(0)


class Served:
    """A server, and a client whose calls come one after the other."""

    def __init__(self, channel: grpc.Channel, link: Connection, kind: str) -> None:
        self._link = link
        self._call: Any = channel.unary_unary(f"/{_SERVICE}/Noop")
        self._code = grpc.StatusCode.OK if kind == KINDS[0] else grpc.StatusCode.RESOURCE_EXHAUSTED
        hold: Any = channel.unary_unary(f"/{_SERVICE}/Hold")
        self._held = hold.future(b"", wait_for_ready=True)
        while self._made() is not self._code:  # until the call that fills the limit is under way
            if self._held.done():  # it found another call
                self._held = hold.future(b"", wait_for_ready=True)

    def _made(self) -> grpc.StatusCode:
        try:
            self._call(b"", wait_for_ready=True)
        except grpc.RpcError as error:
            found: grpc.StatusCode = error.code()
            return found
        return grpc.StatusCode.OK

    def microseconds(self, calls: int) -> float:
        """Make so many calls; return what each took of the processor of the server."""
        before = self._spent()
        wrong = sum(self._made() is not self._code for _ in range(calls))
        assert not wrong, f"{wrong} of {calls} calls ended otherwise than as {self._code}"
        return 1e6 * (self._spent() - before) / calls

    def _spent(self) -> float:
        self._link.send(True)
        found: float = self._link.recv()
        return found


@contextmanager
def served(api: str, kind: str) -> Iterator[Served]:
    """A server of that kind, until the end of the block."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(theirs, api, kind))
    process.start()
    with grpc.insecure_channel(f"127.0.0.1:{ours.recv()}") as channel:
        try:
            yield Served(channel, ours, kind)
        finally:
            ours.send(False)
            process.join()


def measured(api: str, calls: int, rounds: int) -> list[float]:
    """Start a server of each kind; return the quickest round of each, and the ratios of these."""
    with ExitStack() as stack:
        servers = [stack.enter_context(served(api, kind)) for kind in KINDS]
        found = [[each.microseconds(calls) for each in servers] for _ in range(rounds)]
    let_in, ours, by_grpc, bare = (min(column) for column in zip(*found, strict=True))
    return [let_in, ours, by_grpc, bare, ours / let_in, ours / by_grpc, bare / by_grpc]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="calls of a round, by default 200")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each server, by default 5")
    parser.add_argument("--starts", type=int, default=8, help="how often all servers are started, by default 8")
    chosen = parser.parse_args()
    rows = []
    for api in ("asyncio", "threads"):
        starts = [measured(api, chosen.calls, chosen.rounds) for _ in range(chosen.starts)]
        found = [statistics.median(column) for column in zip(*starts, strict=True)]
        rows.append([api, *(f"{each:.0f} us" for each in found[:4]), *(f"{each:.2f}" for each in found[4:])])
    print(table(["server", *KINDS, "ours / let in", "ours / grpc's", "bare / grpc's"], rows))


if __name__ == "__main__":
    main()
