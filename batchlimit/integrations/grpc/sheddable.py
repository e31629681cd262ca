"""Handlers of a threaded server whose calls may be told to give up."""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import grpc

from batchlimit import ConcurrencyLimited
from batchlimit.concurrency import Permit
from batchlimit.integrations.grpc.status import refusal

_permit: ContextVar[Permit | None] = ContextVar("batchlimit_permit", default=None)
"""Of the call that a handler serves. grpcio gives each call a context, but only since some version: so it is set in
the thread of the handler."""


def check_permit() -> None:
    """Raise if the call that this thread serves was told to give up; a handler of a sheddable call is to call this.

    It is for handlers behind a ConcurrencyInterceptor, which answers RESOURCE_EXHAUSTED then. Elsewhere it does
    nothing. Streams need not call it: it is called before each request and each response of theirs.

    Raises:
        ConcurrencyLimited: The call was told to give up; the reason is "shed".

    Example:
        >>> from batchlimit.integrations.grpc import check_permit
        >>> def Search(request, context):
        ...     for shard in range(100):
        ...         check_permit()
    """
    permit = _permit.get()
    if permit is not None:
        permit.check()


class SheddableHandler:
    """Runs the handler of a call, and ends it where the call was told to give up.

    Nobody can end a thread. So the call ends where its handler asks, or at the next request or response of a stream.
    """

    __slots__ = ("_inner", "_permit")

    def __init__(self, inner: Any, permit: Permit) -> None:
        self._inner, self._permit = inner, permit

    def handler(self) -> Any:
        """Return the handler to be run instead."""
        inner = self._inner
        kind = f"{_kind(inner.request_streaming)}_{_kind(inner.response_streaming)}"
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        serve = self._stream if inner.response_streaming else self._unary
        run: Callable[[Any, Any], Any] = getattr(inner, kind)
        return make(
            lambda request, context: serve(run, request, context), inner.request_deserializer, inner.response_serializer
        )

    def _unary(self, run: Callable[[Any, Any], Any], request: Any, context: Any) -> Any:
        _permit.set(self._permit)
        try:
            return run(self._checked(request), context)
        except ConcurrencyLimited as error:
            self._end(error, context)
            raise

    def _stream(self, run: Callable[[Any, Any], Any], request: Any, context: Any) -> Iterator[Any]:
        _permit.set(self._permit)
        try:
            for response in run(self._checked(request), context):
                self._permit.check()
                yield response
        except ConcurrencyLimited as error:
            self._end(error, context)
            raise

    def _checked(self, request: Any) -> Any:
        return self._requests(request) if self._inner.request_streaming else request

    def _requests(self, requests: Iterator[Any]) -> Iterator[Any]:
        for request in requests:
            self._permit.check()
            yield request

    def _end(self, error: ConcurrencyLimited, context: Any) -> None:
        """End a call that gives up as it was told; return if it was not."""
        if error.reason == "shed" and self._permit.shed:
            self._permit.ignore()
            answer = refusal(error)
            context.set_trailing_metadata(answer.metadata)
            context.abort(answer.code, answer.details)


def _kind(streams: bool) -> str:
    return "stream" if streams else "unary"
