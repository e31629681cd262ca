"""What both interceptors of clients on asyncio share: the four kinds of methods, and what follows the end of a call."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc.aio

from batchlimit.integrations.grpc.details import Changed

Continuation = Callable[[Any, Any], Awaitable[Any]]


class _Kind:
    """What the interceptors for the four kinds of methods share."""

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


KINDS = (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
"""An interceptor for each kind of method: grpcio takes one of each on asyncio."""


def named(details: Any) -> Any:
    """Return details of a call whose method is a str, for functions of the user's: grpcio gives bytes here."""
    return details if isinstance(details.method, str) else Changed(details, method=details.method.decode())


class Endings:
    """Tasks that run at the end of calls, one each: that may be long after the interceptor has returned the call."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Endings: {len(self._tasks)} under way>"

    def after(self, call: Any, settle: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `settle` in a task when a call has ended."""

        def ended(_: object) -> None:
            task = asyncio.get_running_loop().create_task(settle())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        try:
            call.add_done_callback(ended)
        except NotImplementedError:  # the response of an interceptor behind this one: there is no call
            ended(call)

    async def wait(self) -> None:
        """Wait until no task is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)
