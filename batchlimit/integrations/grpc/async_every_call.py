"""How the calls of clients on asyncio wait, leave and end, whoever admits them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc.aio

from batchlimit.integrations.grpc.details import Changed
from batchlimit.integrations.grpc.every_call import Patience, Tell

Continuation = Callable[[Any, Any], Awaitable[Any]]


class AsyncEveryCall:
    """Intercepts the calls of all four kinds of methods alike: `_admit` says which may leave.

    Attributes:
        interceptors: one for each kind.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._ends: set[asyncio.Task[None]] = set()
        self.interceptors: Sequence[grpc.aio.ClientInterceptor] = [kind(self._intercept) for kind in _KINDS]

    async def _admit(self, details: Any, timeout: float | None) -> Tell | None:
        """Return what EveryCall._admit does; raise AsyncRefusedCall if the call is refused."""
        raise NotImplementedError

    async def _intercept(self, continuation: Continuation, client_call_details: Any, request: Any) -> Any:
        began = time.monotonic()
        tell = await self._admit(_named(client_call_details), self._patience.of(client_call_details.timeout))
        details = self._patience.rest(client_call_details, time.monotonic() - began)
        if tell is None:
            return await continuation(details, request)
        try:
            call = await continuation(details, request)
        except BaseException as error:
            tell(grpc.StatusCode.UNKNOWN, (), error)
            raise
        self._at_the_end(call, tell)
        return call

    def _at_the_end(self, call: Any, tell: Tell) -> None:
        """Tell in a task that a call has ended, which may be long after the interceptor has returned it."""

        async def end() -> None:
            tell(await call.code(), await call.trailing_metadata(), None)

        def ended(_: object) -> None:
            task = asyncio.get_running_loop().create_task(end())
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

        try:
            call.add_done_callback(ended)
        except NotImplementedError:  # the response of an interceptor behind this one: there is no call
            ended(call)

    async def _ended(self) -> None:
        """Wait for the tasks of calls that have ended."""
        if self._ends:
            await asyncio.wait(self._ends)


def _named(details: Any) -> Any:
    """Return details whose method is a str, for functions of the user's: grpcio gives bytes here."""
    return details if isinstance(details.method, str) else Changed(details, method=details.method.decode())


class _Kind:
    """What the interceptors for the four kinds of methods share: grpcio takes one of each on asyncio."""

    def __init__(self, intercept: Callable[[Continuation, Any, Any], Awaitable[Any]]) -> None:
        self._intercept = intercept

    # The stubs of grpcio call the last argument `request_iterator` where requests stream; grpcio passes it by position.
    async def intercept(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._intercept(continuation, client_call_details, request)


class _UnaryUnary(_Kind, grpc.aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary = _Kind.intercept


class _UnaryStream(_Kind, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream = _Kind.intercept


class _StreamUnary(_Kind, grpc.aio.StreamUnaryClientInterceptor):
    intercept_stream_unary = _Kind.intercept  # type: ignore[assignment]


class _StreamStream(_Kind, grpc.aio.StreamStreamClientInterceptor):
    intercept_stream_stream = _Kind.intercept  # type: ignore[assignment]


_KINDS = (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
