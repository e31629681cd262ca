"""A call that a server serves, from before its handler runs to its end: `served` and `served_async`."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from functools import cached_property, lru_cache, partial
from typing import Any, Self, TypeAlias

import grpc
import grpc.aio

from batchlimit import ConcurrencyLimited
from batchlimit.admission.permit import give_back
from batchlimit.errors import PermitLost
from batchlimit.events import log_event
from batchlimit.integrations.grpc.answer import CallRefusal, OutcomeOf, refused_by_limiter, status
from batchlimit.integrations.grpc.details import HELD, Changed
from batchlimit.integrations.permits import AnyPermit
from batchlimit.shared import AsyncSharedPermit, SharedPermit

Ended = Callable[[grpc.StatusCode | None, BaseException | None, int], None]
"""Called when a call has ended: with its status, if one was set, what ended it, if anything, and its responses."""
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_ROUNDED = 0.02
"""The share of its time that a call may have left when its client gives up. A deadline travels as a duration of three
digits, rounded up: that is up to 1 %. The client goes by its own clock, so the time to arrive comes on top."""
_ARRIVAL_S = 0.005


class CallEnd:
    """Tells how a call ended, as its client saw it. A `permit` that is lost or shed ends it: see `check_permit`."""

    __slots__ = ("_context", "_ended", "_given", "permit", "sent")

    def __init__(self, context: Any, ended: Ended, permit: Any = None) -> None:
        self._context, self._ended, self.permit, self.sent = context, ended, permit, 0
        self._given = context.time_remaining()

    def checked(self, messages: Iterator[Any]) -> Iterator[Any]:
        """Yield messages; look at the permit before each."""
        for message in messages:
            self.permit.check()
            yield message

    def fail(self, error: BaseException, *, gone: bool) -> None:
        """Tell of an error that ended the call; refuse the call, which raises, if its permit is the reason."""
        permit = self.permit
        try:
            if permit is not None and isinstance(error, ConcurrencyLimited | PermitLost):
                is_shared, why = isinstance(permit, SharedPermit), getattr(error, "reason", "")
                if permit.lost if is_shared else permit.shed and why == "shed":
                    give_back(permit)
                    refused_by_limiter(error).end(self._context)
        finally:
            self.tell(error, gone=gone)

    def tell(self, error: BaseException | None, *, gone: bool) -> None:
        """Tell of the end, and what error ended it; `gone`: the client waits no longer."""
        left, code = self._context.time_remaining(), status(self._context.code())
        if left is not None and self._given is not None and left <= _ARRIVAL_S + _ROUNDED * self._given:
            code = grpc.StatusCode.DEADLINE_EXCEEDED  # by the client's clock, as far as this server can tell
        elif code is None and gone:
            code = grpc.StatusCode.CANCELLED
        elif code is None and isinstance(error, grpc.RpcError) and hasattr(error, "code"):
            code = status(error.code())  # that of a call further down which failed
        self._ended(code, error, self.sent)


def completing(permit: AnyPermit, outcome: OutcomeOf) -> Ended:
    """Return what completes a permit at the end of its call; the limiter classifies an error without a status."""

    def ended(code: grpc.StatusCode | None, error: BaseException | None, sent: int) -> None:
        if isinstance(permit, SharedPermit | AsyncSharedPermit):
            permit.release()
        elif code is not None:
            give_back(permit, outcome(code))
        elif error is None:
            permit.success()
        else:
            permit.__exit__(type(error), error, error.__traceback__)

    return ended


def function_of(handler: Handler) -> Any:
    """Return the function that serves the calls of a method, of whichever kind it is."""
    return handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream


def streaming(handler: Handler, serve: Callable[[Any, Any], Any], reads: Callable[[bytes], Any] | None) -> Handler:
    """Return a handler whose requests stream, even if those of `handler` do not; its responses are as there."""
    make = grpc.stream_stream_rpc_method_handler if handler.response_streaming else grpc.stream_unary_rpc_method_handler
    return make(serve, reads, handler.response_serializer)


def streaming_async(handler: Handler, serve: Callable[[Any, Any], Awaitable[Any]]) -> Handler:
    """Return such a handler of a server on asyncio; an interceptor before it may iterate its responses."""
    found = _Streamed(serve) if handler.response_streaming else serve
    return streaming(handler, found, handler.request_deserializer)


class _Streamed(partial[Any]):
    """Writes responses to grpcio, which takes it for a coroutine function; or yields them to who iterates."""

    def __call__(self, requests: Any, context: Any) -> "_Stream":
        return _Stream(partial(self.func, requests), context)


class _Stream(Coroutine[Any, Any, None]):
    def __init__(self, serve: Callable[[Any], Any], context: Any) -> None:
        self._serve, self._context = serve, context

    @cached_property
    def _call(self) -> Any:
        return self._serve(self._context)

    def __await__(self) -> Any:
        return self._call.__await__()

    def send(self, value: Any) -> Any:
        return self._call.send(value)

    def throw(self, *error: Any) -> Any:
        return self._call.throw(*error)

    def close(self) -> None:
        self._call.close()

    async def __aiter__(self) -> AsyncIterator[Any]:
        written = asyncio.Queue[Any]()

        async def write(response: Any) -> None:
            written.put_nowait(response)
            await written.join()

        served = asyncio.ensure_future(self._serve(Changed(self._context, write=write)))
        served.add_done_callback(written.put_nowait)
        self._context.add_done_callback(lambda _: served.cancel())  # whoever iterates may not come back
        try:
            while (response := await written.get()) is not served:
                yield response
                written.task_done()
            await served
        finally:
            served.cancel()
            await asyncio.wait((served,))


def served(handler: Handler, begin: Callable[[Any], CallEnd], limited: Any = None, *, blocks: bool = False) -> Handler:
    """Return the handler to give to grpcio for a call; `begin` returns its CallEnd, or refuses it by an exception.

    `limited` gets streamed requests and the context, and returns the requests. grpcio is to believe that requests
    stream: it then runs a handler whose client left before a worker took the call. Else it would silently drop that,
    and nobody would learn of the end.
    """
    function, read = function_of(handler), handler.request_deserializer

    def respond(end: CallEnd, requests: Iterator[Any], context: Any, *callback: Any) -> Any:
        if handler.request_streaming:
            if limited:
                requests = limited(requests, context)
            return function(end.checked(requests) if end.permit else requests, context, *callback)
        for request in requests:  # grpcio raises here if the client has disconnected
            try:
                only = request if read is None else read(request)
            except Exception as error:  # noqa: BLE001  it is the client's, or the application's
                log_event("web.unreadable", "a request cannot be read", error=error)
                return context.abort(grpc.StatusCode.INTERNAL, "The request cannot be read!")
            return function(only, context, *callback)
        return context.abort(grpc.StatusCode.UNIMPLEMENTED, "This method takes exactly one request!")

    def unary(requests: Iterator[Any], context: Any) -> Any:
        end = begin(context)
        try:
            response = respond(end, requests, context)
            end.sent = 1
        except BaseException as error:
            end.fail(error, gone=not context.is_active())
            raise
        end.tell(None, gone=not context.is_active())
        return response

    def stream(requests: Iterator[Any], context: Any, *callback: Any) -> Iterator[Any] | None:
        end = begin(context)
        if not callback:  # where there is one, the handler returns at once, and keeps no worker
            return _Responses(lambda: respond(end, requests, context), context, end)
        if not context.add_callback(lambda: end.tell(None, gone=True)):
            end.tell(None, gone=True)
        respond(end, requests, context, *callback)
        return None

    serve: Any = stream if handler.response_streaming else unary
    is_pooled = getattr(function, "experimental_non_blocking", False)  # as that of health checks
    if is_pooled and not limited and not blocks:
        serve.experimental_non_blocking = True
        serve.experimental_thread_pool = getattr(function, "experimental_thread_pool", None)
    # A single request is deserialized here. If grpcio cannot read a request of a stream, it answers twice, and the
    # server can then never stop.
    return streaming(handler, serve, read if handler.request_streaming else None)


class _Responses:
    """Hands out what a handler yields, and tells of the end; also when grpcio, its client gone, asks for no more."""

    __slots__ = ("_busy", "_end", "_gone", "_responses", "_start")

    def __init__(self, start: Callable[[], Iterator[Any]], context: Any, end: CallEnd) -> None:
        self._start, self._end = start, end
        self._responses: Iterator[Any] | None = None
        # Each side changes its own flag before it looks at the other's: whoever is second tells of the end.
        self._busy, self._gone = True, False
        if not context.add_callback(self._leave):
            self._gone = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._busy, end = True, self._end
        try:
            if self._responses is None:
                if end.permit is not None:  # grpcio gives each call a context of its own only since some version
                    HELD.set(end.permit)
                responses = iter(self._start())
                self._responses = end.checked(responses) if end.permit else responses
            response = next(self._responses)
        except StopIteration:
            end.tell(None, gone=self._gone)
            raise
        except BaseException as error:
            end.fail(error, gone=self._gone)
            raise
        end.sent += 1
        self._busy = False
        if self._gone:
            end.tell(None, gone=True)
        return response

    def _leave(self) -> None:
        """The call is over; in a thread of grpcio."""
        self._gone = True
        if not self._busy:
            self._end.tell(None, gone=True)


@lru_cache
def refusing_async(answer: CallRefusal) -> Handler:
    """Return a handler of a server on asyncio that refuses calls of any kind: both sides stream, and are empty."""

    async def refuse(requests: object, context: Any) -> None:
        answer.tell(context)

    return grpc.stream_stream_rpc_method_handler(refuse)


def served_async(handler: Handler) -> Callable[[AsyncIterator[Any], Any, Ended], Awaitable[Any]]:
    """Return what runs a handler of a server on asyncio, and tells how the call ended.

    grpcio is to believe that requests stream, and that a coroutine writes responses that stream. It then enters the
    handler at once, and no call is cancelled before, nor is a generator left for the event loop to close.
    """
    run = function_of(handler)
    generates = inspect.isasyncgenfunction(run)
    if not generates and not inspect.iscoroutinefunction(run):
        raise TypeError(f"a handler of an asyncio server must be a coroutine or async generator, not {run!r}")

    async def serve(requests: AsyncIterator[Any], context: Any, ended: Ended) -> Any:
        end, error = CallEnd(context, ended), None
        try:
            argument: Any = requests
            if not handler.request_streaming and (argument := await context.read()) is grpc.aio.EOF:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "This method takes exactly one request!")
            response = None
            if not generates:
                response = await run(argument, context)
                end.sent = int(not handler.response_streaming)
            else:
                async with aclosing(run(argument, context)) as responses:
                    async for each in responses:
                        await context.write(each)
                        end.sent += 1
            if handler.request_streaming:
                await asyncio.sleep(0)  # the requests of a client that cancels end first, and then this is cancelled
            return response
        except BaseException as raised:
            error = raised
            raise
        finally:
            end.tell(error, gone=isinstance(error, asyncio.CancelledError))

    return serve
