"""Handlers of a threaded server whose calls may be told to give up, or may lose their permits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from batchlimit import ConcurrencyLimited
from batchlimit.admission.permit import give_back
from batchlimit.concurrency import Permit
from batchlimit.errors import PermitLost
from batchlimit.integrations.grpc.held import HELD
from batchlimit.integrations.grpc.status import refusal
from batchlimit.shared import SharedPermit


class SheddableHandler:
    """Runs the handler of a call, and ends it where the call was told to give up, or lost its permit.

    `permit_of` returns the permit, which is known when the handler runs. Nobody can end a thread. So the call ends
    where its handler asks, or at the next request or response of a stream.
    """

    __slots__ = ("_inner", "_permit_of")

    def __init__(self, inner: Any, permit_of: Callable[[], Permit | SharedPermit]) -> None:
        self._inner, self._permit_of = inner, permit_of

    @property
    def _permit(self) -> Permit | SharedPermit:
        return self._permit_of()

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
        with self._may_end(context):
            return run(self._checked(request), context)

    def _stream(self, run: Callable[[Any, Any], Any], request: Any, context: Any) -> Iterator[Any]:
        with self._may_end(context):
            for response in run(self._checked(request), context):
                self._permit.check()
                yield response

    def _checked(self, request: Any) -> Any:
        return self._requests(request) if self._inner.request_streaming else request

    def _requests(self, requests: Iterator[Any]) -> Iterator[Any]:
        for request in requests:
            self._permit.check()
            yield request

    @contextmanager
    def _may_end(self, context: Any) -> Iterator[None]:
        """End the call if its handler gives up as it was told, or because the permit is lost."""
        permit = self._permit
        HELD.set(permit)  # here, because grpcio gives each call a context of its own only since some version
        try:
            yield
        except (ConcurrencyLimited, PermitLost) as error:
            if _ends(permit, error):
                give_back(permit)
                refusal(error).end(context)
            raise


def _ends(permit: Permit | SharedPermit, error: ConcurrencyLimited | PermitLost) -> bool:
    if isinstance(permit, SharedPermit):
        return permit.lost
    return permit.shed and getattr(error, "reason", "") == "shed"


def _kind(streams: bool) -> str:
    return "stream" if streams else "unary"
