"""A call that a threaded server has admitted, and its permit."""

import logging
from collections.abc import Iterator
from typing import Any, TypeAlias

import grpc

from batchlimit import Permit
from batchlimit.integrations.grpc.ending import Ending
from batchlimit.integrations.grpc.status import OutcomeOf
from batchlimit.integrations.grpc.stream import Responses

_logger = logging.getLogger("batchlimit")

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Call:
    """One call, its handler and its permit, which is completed when the handler has returned or its stream has ended.

    grpcio is told that its requests stream, whether they do or not. It then runs the handler even if the client has
    gone before a worker took the call; otherwise it would silently drop it there, and the permit with it.
    """

    __slots__ = ("_handler", "_outcome", "_permit")

    def __init__(self, handler: Handler, permit: Permit, outcome: OutcomeOf) -> None:
        self._handler, self._permit, self._outcome = handler, permit, outcome

    def handler(self) -> Handler:
        """Return the handler to give to grpcio."""
        inner = self._handler
        # A single request is read by us: grpcio answers one twice that it cannot read amid a stream, and the server can
        # never stop then.
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
        """Return the request; if the client has gone, grpcio raises here."""
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
