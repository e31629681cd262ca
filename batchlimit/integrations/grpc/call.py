"""A call that a threaded server has admitted, and its permit."""

import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self, TypeAlias

import grpc

from batchlimit.concurrency import AsyncPermit, Outcome, Permit
from batchlimit.integrations.grpc.status import OutcomeOf, status


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


class Ending:
    """Completes the permit of a call, by how its client saw it end."""

    __slots__ = ("_context", "_given", "_outcome", "_permit")

    def __init__(self, permit: Permit | AsyncPermit, outcome: OutcomeOf, context: Context) -> None:
        self._permit, self._outcome, self._context = permit, outcome, context
        self._given = context.time_remaining()

    def end(self, error: BaseException | None, *, gone: bool) -> None:
        """Complete the permit of a call that ended.

        Args:
            error: What ended it, if anything. The limiter classifies an error without a status.
            gone: Whether its client waits no longer.
        """
        code = self._status(error, gone)
        if code is not None:
            self._complete(self._outcome(code))
        elif error is None:
            self._permit.success()
        else:
            self._permit.__exit__(type(error), error, error.__traceback__)

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

    def _complete(self, outcome: Outcome) -> None:
        match outcome:
            case Outcome.SUCCESS:
                self._permit.success()
            case Outcome.DROPPED:
                self._permit.drop()
            case Outcome.IGNORED:
                self._permit.ignore()


_logger = logging.getLogger("batchlimit")

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Call:
    """One call, its handler and its permit, which is completed when the handler has returned or its stream has ended.

    grpcio is made to believe that the requests stream, whether they do or not. It then runs the handler even if the
    client disconnected before a worker took the call. Otherwise it would silently drop the handler there, and the
    permit with it.
    """

    __slots__ = ("_handler", "_outcome", "_permit")

    def __init__(self, handler: Handler, permit: Permit, outcome: OutcomeOf) -> None:
        self._handler, self._permit, self._outcome = handler, permit, outcome

    def handler(self) -> Handler:
        """Return the handler to give to grpcio."""
        inner = self._handler
        # A single request is deserialized here. If grpcio cannot read a request of a stream, it answers twice, and the
        # server can then never stop.
        reads = inner.request_deserializer if inner.request_streaming else None
        if inner.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._stream, reads, inner.response_serializer)
        return grpc.stream_unary_rpc_method_handler(self._unary, reads, inner.response_serializer)

    def _unary(self, requests: Iterator[Any], context: Any) -> Any:
        ending, error = Ending(self._permit, self._outcome, context), None
        try:
            return self._respond(requests, context)
        except BaseException as raised:
            error = raised
            raise
        finally:
            ending.end(error, gone=not context.is_active())

    def _stream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        ending = Ending(self._permit, self._outcome, context)
        return Responses(lambda: self._respond(requests, context), context, ending)

    def _respond(self, requests: Iterator[Any], context: Any) -> Any:
        """Run the handler."""
        inner = self._handler
        run: Any = inner.unary_unary or inner.unary_stream or inner.stream_unary or inner.stream_stream
        return run(requests if inner.request_streaming else self._only(requests, context), context)

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
        except Exception:
            _logger.exception("a request cannot be read")
            return context.abort(grpc.StatusCode.INTERNAL, "The request cannot be read!")
