"""A call that a server on asyncio serves, from before its handler runs to its end."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from batchlimit import ConcurrencyLimited
from batchlimit.concurrency import AsyncPermit, AsyncPermits
from batchlimit.errors import PermitLost
from batchlimit.integrations.grpc.call import Ended, Ending, Handler, completing, function_of, streaming
from batchlimit.integrations.grpc.held import HELD
from batchlimit.integrations.grpc.status import OutcomeOf, refusal
from batchlimit.shared import AsyncSharedPermit

Held = AsyncPermit | AsyncPermits | AsyncSharedPermit


class AsyncMethod:
    """A handler that is a coroutine function or an async generator function.

    grpcio is made to believe that the requests stream, and that a coroutine writes the responses, if they stream. It
    then enters the handler at once, and whatever ends the call passes through here. Otherwise it might be cancelled
    before, while it waits for a request; and it would leave a generator for the event loop to close.
    """

    __slots__ = ("_generates", "_handler", "_run")

    def __init__(self, handler: Handler) -> None:
        self._handler, self._run = handler, function_of(handler)
        self._generates = inspect.isasyncgenfunction(self._run)
        if not self._generates and not inspect.iscoroutinefunction(self._run):
            raise TypeError(f"a handler of an asyncio server must be a coroutine or async generator, not {self._run!r}")

    def served_by(self, serve: Callable[[Any, Any], Awaitable[Any]]) -> Handler:
        """Return the handler to give to grpcio, which calls `serve` with the requests and the context."""
        return streaming(self._handler, serve, self._handler.request_deserializer)

    async def run(self, requests: AsyncIterator[Any], context: Any, ended: Ended) -> Any:
        """Run the handler, and tell how the call ended."""
        ending, error = Ending(context, ended), None
        try:
            return await self._respond(requests, context, ending)
        except BaseException as raised:
            error = raised
            raise
        finally:
            ending.end(error, gone=isinstance(error, asyncio.CancelledError))

    async def _respond(self, requests: AsyncIterator[Any], context: Any, ending: Ending) -> Any:
        argument = requests if self._handler.request_streaming else await _only(context)
        if not self._generates:
            response = await self._run(argument, context)
            ending.sent = int(not self._handler.response_streaming)
            return response
        async with aclosing(self._run(argument, context)) as responses:
            async for response in responses:
                await context.write(response)
                ending.sent += 1
        return None


class AsyncCall:
    """One call and its permit, which is completed when the handler has returned or its stream has ended."""

    __slots__ = ("_method", "_outcome", "_permit")

    def __init__(self, handler: Handler, permit: Held, outcome: OutcomeOf) -> None:
        self._method, self._permit, self._outcome = AsyncMethod(handler), permit, outcome

    def handler(self) -> Handler:
        """Return the handler to give to grpcio."""
        return self._method.served_by(self._serve)

    async def _serve(self, requests: AsyncIterator[Any], context: Any) -> Any:
        HELD.set(self._permit)
        try:
            async with self._permit:
                return await self._method.run(requests, context, completing(self._permit, self._outcome))
        except (ConcurrencyLimited, PermitLost) as error:
            if not getattr(self._permit, "shed", False) and not getattr(self._permit, "lost", False):
                raise
            await refusal(error).end_async(context)


async def _only(context: Any) -> Any:
    """Return the request."""
    request = await context.read()
    if request is grpc.aio.EOF:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "This method takes exactly one request!")
    return request
