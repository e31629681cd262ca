"""A call that a threaded server serves, from before its handler runs to its end."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self, TypeAlias

import grpc

from batchlimit.events import tell
from batchlimit.integrations.grpc.status import OutcomeOf, status
from batchlimit.integrations.permits import AnyPermit, judge
from batchlimit.shared import AsyncSharedPermit, SharedPermit


class Responses:
    """Hands out what a handler yields, and ends the call when the stream has ended.

    When the client has disconnected, grpcio simply asks for no more responses. The call then ends at once; or, if a
    worker is in the handler at the time, when that returns.
    """

    __slots__ = ("_busy", "_context", "_ending", "_gone", "_responses", "_start")

    def __init__(self, start: Callable[[], Iterator[Any]], context: Any, ending: "Ending") -> None:
        self._start, self._context, self._ending = start, context, ending
        self._responses: Iterator[Any] | None = None
        # Each side changes its own flag before it looks at the other's: whoever is second ends the call.
        self._busy, self._gone = True, False
        if not context.add_callback(self._leave):
            self._gone = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._busy = True
        try:
            response = self._next()
        except StopIteration:
            self._ending.end(None, gone=self._gone)
            raise
        except BaseException as error:
            self._ending.end(error, gone=self._gone)
            raise
        self._ending.sent += 1
        self._busy = False
        if self._gone:
            self._ending.end(None, gone=True)
        return response

    def _next(self) -> Any:
        if self._responses is None:
            self._responses = iter(self._start())
        return next(self._responses)

    def _leave(self) -> None:
        """The call is over; in a thread of grpcio."""
        self._gone = True
        if not self._busy:
            self._ending.end(None, gone=True)


_ROUNDED = 0.02
"""The share of its time that a call may have left when its client gives up. A deadline travels as a duration of three
digits, rounded up: that is up to 1 %. The client goes by its own clock, so the time to arrive comes on top."""
_ARRIVAL_S = 0.005


class Context(Protocol):
    """What the contexts of both kinds of server can tell."""

    def code(self) -> Any: ...

    def time_remaining(self) -> float | None: ...


Ended = Callable[[grpc.StatusCode | None, BaseException | None, int], None]
"""Called when a call has ended: with its status, if one was set, what ended it, if anything, and its responses."""


class Ending:
    """Tells how a call ended, as its client saw it.

    Attributes:
        sent: how many responses were handed to grpcio.
    """

    __slots__ = ("_context", "_ended", "_given", "sent")

    def __init__(self, context: Context, ended: Ended) -> None:
        self._context, self._ended, self.sent = context, ended, 0
        self._given = context.time_remaining()

    def end(self, error: BaseException | None, *, gone: bool) -> None:
        """Tell of the end.

        Args:
            error: What ended the call, if anything.
            gone: Whether its client waits no longer.
        """
        self._ended(self._status(error, gone), error, self.sent)

    def _status(self, error: BaseException | None, gone: bool) -> grpc.StatusCode | None:
        """Return the status that was set; without one, that of a call further down which failed."""
        if self._late():
            return grpc.StatusCode.DEADLINE_EXCEEDED
        if code := status(self._context.code()):
            return code
        if gone:
            return grpc.StatusCode.CANCELLED
        return status(error.code()) if isinstance(error, grpc.RpcError) and hasattr(error, "code") else None

    def _late(self) -> bool:
        """Whether the time that the client gave is over, by the client's clock as far as this server can tell."""
        left = self._context.time_remaining()
        return left is not None and self._given is not None and left <= _ARRIVAL_S + _ROUNDED * self._given


def completing(permit: AnyPermit, outcome: OutcomeOf) -> Ended:
    """Return what completes a permit at the end of its call; the limiter classifies an error without a status."""

    def ended(code: grpc.StatusCode | None, error: BaseException | None, sent: int) -> None:
        if isinstance(permit, SharedPermit | AsyncSharedPermit):
            permit.release()
        elif code is not None:
            judge(permit, outcome(code))
        elif error is None:
            permit.success()
        else:
            permit.__exit__(type(error), error, error.__traceback__)

    return ended


Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


def function_of(handler: Handler) -> Any:
    """Return the function that serves the calls of a method, of whichever kind it is."""
    return handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream


def streaming(handler: Handler, serve: Callable[[Any, Any], Any], reads: Callable[[bytes], Any] | None) -> Handler:
    """Return a handler whose requests stream, even if those of `handler` do not; its responses are as there."""
    make = grpc.stream_stream_rpc_method_handler if handler.response_streaming else grpc.stream_unary_rpc_method_handler
    return make(serve, reads, handler.response_serializer)


class Call:
    """One call and its handler.

    grpcio is made to believe that the requests stream, whether they do or not. It then runs the handler even if the
    client disconnected before a worker took the call. Otherwise it would silently drop the handler there, and nobody
    would learn of the end.

    Args:
        handler: The handler of the call.
        begin: Returns the Ending of the call, from its context; an exception refuses the call.
        receive: Returns the requests of a stream as the handler gets them (default None: as they are).
    """

    __slots__ = ("_begin", "_handler", "_receive")

    def __init__(
        self,
        handler: Handler,
        begin: Callable[[Any], Ending],
        receive: Callable[[Iterator[Any], Any], Iterator[Any]] | None = None,
    ) -> None:
        self._handler, self._begin, self._receive = handler, begin, receive

    def handler(self) -> Handler:
        """Return the handler to give to grpcio."""
        inner = self._handler
        # A single request is deserialized here. If grpcio cannot read a request of a stream, it answers twice, and the
        # server can then never stop.
        reads = inner.request_deserializer if inner.request_streaming else None
        return streaming(inner, self._stream if inner.response_streaming else self._unary, reads)

    def _unary(self, requests: Iterator[Any], context: Any) -> Any:
        ending, error = self._begin(context), None
        try:
            response = self._respond(requests, context)
            ending.sent = 1
            return response
        except BaseException as raised:
            error = raised
            raise
        finally:
            ending.end(error, gone=not context.is_active())

    def _stream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        ending = self._begin(context)
        return Responses(lambda: self._respond(requests, context), context, ending)

    def _respond(self, requests: Iterator[Any], context: Any) -> Any:
        """Run the handler."""
        inner = self._handler
        run = function_of(inner)
        if not inner.request_streaming:
            return run(self._only(requests, context), context)
        return run(requests if self._receive is None else self._receive(requests, context), context)

    def _only(self, requests: Iterator[Any], context: Any) -> Any:
        """Return the request; grpcio raises here if the client has disconnected."""
        for request in requests:
            return self._read(request, context)
        return context.abort(grpc.StatusCode.UNIMPLEMENTED, "This method takes exactly one request!")

    def _read(self, request: bytes, context: Any) -> Any:
        if self._handler.request_deserializer is None:
            return request
        try:
            return self._handler.request_deserializer(request)
        except Exception as error:  # noqa: BLE001  it is the client's, or the application's
            tell("web.unreadable", "a request cannot be read", error=error)
            return context.abort(grpc.StatusCode.INTERNAL, "The request cannot be read!")
