"""A gRPC service of all four kinds of method, which does as the requests say. Its methods are named by their kinds."""

import builtins
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc

from batchlimit.base.steps import Steps, drive, run
from batchlimit.integrations.grpc import check_permit
from tests.integrations.gate import Gate

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
SERVED = {"unary_unary": ["a"], "unary_stream": ["first", "a"], "stream_unary": ["a b"], "stream_stream": ["a", "b"]}
"""What a method of each kind answers to the requests "a" and "b"."""


Words = list[str]


def _read(request: bytes) -> Words:
    if request == b"garbled":
        raise ValueError("nobody can read that")
    return request.decode().split()


def _write(response: Words) -> bytes:
    return " ".join(response).encode()


class Failed(grpc.RpcError):
    """What a client raises, here for a call that a handler makes."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


class Service(grpc.GenericRpcHandler):
    """For a threaded server: methods of the service `test.Threads`, or of any other name."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.stop: Callable[[], Any] = gate.stop

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        kind = handler_call_details.method.rpartition("/")[2]
        if kind not in KINDS:
            return None
        make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(getattr(self, kind), request_deserializer=_read, response_serializer=_write)

    def steps(self, request: Words, context: Any) -> Steps[Words]:
        """`hold`, `work`, `abort CODE`, `status CODE`, `below CODE`, `raise ERROR`; anything else is echoed."""
        match request:
            case ["hold"]:
                yield self.stop()
            case ["work"]:
                self.gate.work(check_permit)
            case ["abort", code]:
                yield context.abort(grpc.StatusCode[code], "as told")
            case ["status", code]:
                context.set_code(grpc.StatusCode[code])
            case ["below", code]:
                raise Failed(grpc.StatusCode[code])
            case ["raise", error]:
                raise getattr(builtins, error)("as told")
            case _:
                pass
        return request

    def obey(self, request: Words, context: Any) -> Any:
        return run(self.steps(request, context))

    def unary_unary(self, request: Words, context: Any) -> Any:
        return self.obey(request, context)

    def unary_stream(self, request: Words, context: Any) -> Iterator[Words]:
        yield ["first"]
        while request == ["flood"]:
            yield request
        yield self.obey(request, context)

    def stream_unary(self, requests: Iterator[Words], context: Any) -> Words:
        return [word for request in requests for word in self.obey(request, context)]

    def stream_stream(self, requests: Iterator[Words], context: Any) -> Iterator[Words]:
        for request in requests:
            yield self.obey(request, context)


class AsyncService(Service):
    """For a server on asyncio."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate)
        self.stop = gate.astop

    async def obey(self, request: Words, context: Any) -> Words:
        return await drive(self.steps(request, context))

    async def unary_unary(self, request: Words, context: Any) -> Words:
        return await self.obey(request, context)

    async def unary_stream(self, request: Words, context: Any) -> AsyncIterator[Words]:  # type: ignore[override]
        yield ["first"]
        while request == ["flood"]:
            yield request
        yield await self.obey(request, context)

    async def stream_unary(self, requests: AsyncIterator[Words], context: Any) -> Words:  # type: ignore[override]
        return [word async for request in requests for word in await self.obey(request, context)]

    async def stream_stream(self, requests: AsyncIterator[Words], context: Any) -> None:  # type: ignore[override]
        async for request in requests:
            await context.write(await self.obey(request, context))
