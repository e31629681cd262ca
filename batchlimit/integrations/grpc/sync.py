"""ConcurrencyInterceptor: limits the calls of a threaded gRPC server."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc

from batchlimit import ConcurrencyLimited, ConcurrencyLimiter, LimiterClosed
from batchlimit.integrations.grpc.call import Call, Handler
from batchlimit.integrations.grpc.details import Name, nobody
from batchlimit.integrations.grpc.status import OutcomeOf, Refusal, outcome_of, refusal


class ConcurrencyInterceptor(grpc.ServerInterceptor):
    """Lets as many calls in at once as the limiter lets; refuses the others before they take a worker thread.

    A call is under way from before it lines up for a worker until its handler has returned, or its stream has ended:
    the line before the workers is part of what the limiter sees, and of what it limits. It is the only line. Nobody
    waits in the queue of the limiter, for that would block the one thread that takes in all calls.

    `partition` names the partition of a call; its operation is the method in full. `outcome` says what a status tells
    about the load; the limiter's own `classify` judges an exception that ends a handler without a status.
    """

    def __init__(
        self, limiter: ConcurrencyLimiter, *, partition: Name = nobody, outcome: OutcomeOf = outcome_of
    ) -> None:
        self._limiter = limiter
        self._partition = partition
        self._outcome = outcome

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._limiter!r}>"

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], "Handler | None"],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Return the handler to be served under a permit, or one that refuses."""
        partition, operation = self._partition(handler_call_details), handler_call_details.method
        try:
            permit = self._limiter.acquire(partition, timeout=0, operation=operation)
        except (ConcurrencyLimited, LimiterClosed) as error:
            return _refusing(refusal(error))
        handler = None
        try:
            if found := continuation(handler_call_details):
                handler = Call(found, permit, self._outcome).handler()
        finally:
            if handler is None:
                permit.ignore()
        return handler


def _refusing(answer: Refusal) -> Handler:
    """Return a handler that refuses, whatever kind of method it stands for.

    As one whose requests stream it waits for none of them.
    """

    def refuse(requests: object, context: grpc.ServicerContext) -> object:
        context.set_trailing_metadata(answer.metadata)
        context.abort(answer.code, answer.details)

    refuse.experimental_thread_pool = _AT_ONCE  # type: ignore[attr-defined]
    return grpc.stream_unary_rpc_method_handler(refuse)


class _AtOnce(ThreadPoolExecutor):
    """No threads: whoever submits does it.

    grpcio runs a handler in the pool that the handler brings along, if it is of this type. One that refuses blocks
    nowhere and takes microseconds, in the very thread that asked the interceptor. A grpcio that no longer looks for
    such pools would refuse in a worker.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


_AT_ONCE = _AtOnce(max_workers=1)
