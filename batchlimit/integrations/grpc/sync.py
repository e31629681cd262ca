"""ConcurrencyInterceptor: limits the calls of a threaded gRPC server."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import grpc

from batchlimit import BatchLimitError, ConcurrencyLimiter
from batchlimit.admission.permit import THREADED, give_back
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.integrations.grpc.call import Call, Ending, Handler, completing
from batchlimit.integrations.grpc.details import Name, alike, never, nobody
from batchlimit.integrations.grpc.held import HELD
from batchlimit.integrations.grpc.queued import OwnPool, QueuedCall
from batchlimit.integrations.grpc.sheddable import SheddableHandler
from batchlimit.integrations.grpc.status import OutcomeOf, Refusal, outcome_of, refusal
from batchlimit.integrations.permit_source import KeyOf, PermitSource
from batchlimit.shared import SharedConcurrencyLimiter


class ConcurrencyInterceptor(grpc.ServerInterceptor):
    """Lets as many calls in at once as the limiter lets; refuses the others before they take a worker thread.

    A call is under way from before it queues for a worker until its handler has returned, or its stream has ended. So
    the queue before the workers is part of what the limiter sees and limits. No call waits in the queue of the limiter,
    unless you pass `workers`: it then waits there without a thread, and takes a worker when it has its place. The
    operation of a call is its method in full.

    Args:
        limiter: The limiter: by key, shared by key, or one limit for all. It may serve others too. A shared one is
            asked by the worker thread, because that may take a round trip. Its handlers are to call `check_permit`
            before each step that must not happen twice: the call ends there with UNAVAILABLE, if its permit is lost.
        partition: Returns the name of a call's partition (default: no name, so the call gets what is spare).
        key: Returns the key of a call, for a limiter by key, or several keys for a keyed one (default None: the limiter
            has no keys). A call is refused if it raises.
        outcome: Returns what a status tells about the load (default `outcome_of`). `classify` of the limiter judges an
            exception that ends a handler without a status.
        sheddable: Returns whether a call may be told to give up; see Shedding (default: of none). A stream ends at its
            next request or response then. A handler of one response ends where it calls `check_permit`.
        priority: Returns the priority of a call: high ones are served first in the queue, low ones are shed first
            (default: the same for all).
        workers: The pool of the server, for calls that wait in the limiter's queue (default None: no call waits). A
            call of several keys does not wait. One whose client went away keeps its place in the queue.
        timeout: How long a call waits there at most (seconds; None, the default: as long as the queue lets it).

    Raises:
        TypeError: `key`, `sheddable` or `workers` does not go with the limiter.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import grpc
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.integrations.grpc import ConcurrencyInterceptor
        >>> with ConcurrencyLimiter() as limiter, ThreadPoolExecutor(4) as workers:
        ...     server = grpc.server(workers, interceptors=[ConcurrencyInterceptor(limiter)])
        ...     server.stop(None).wait()
        True
    """

    def __init__(
        self,
        limiter: ConcurrencyLimiter | KeyedConcurrencyLimiter | SharedConcurrencyLimiter,
        *,
        partition: Name = nobody,
        key: KeyOf | None = None,
        outcome: OutcomeOf = outcome_of,
        sheddable: Callable[[grpc.HandlerCallDetails], bool] = never,
        priority: Callable[[grpc.HandlerCallDetails], int] = alike,
        workers: Executor | None = None,
        timeout: float | None = None,
    ) -> None:
        if key is not None and sheddable is not never:
            raise TypeError("sheddable= is for a limiter without keys")
        self._is_keyed, self._source = key is not None, PermitSource(THREADED, limiter, partition, key)
        if workers is not None and self._source.is_shared:
            raise TypeError("workers= is for limiters of this process: calls ask a shared one in their worker")
        self._outcome = outcome
        self._sheddable, self._priority = sheddable, priority
        self._workers, self._timeout = workers, timeout

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._source!r}>"

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], "Handler | None"],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Let a call in, or refuse it; grpcio calls this.

        Args:
            continuation: Returns the handler of the call.
            handler_call_details: Its method and its metadata.

        Returns:
            The handler to be served under a permit, or one that refuses; None if there is no such method.
        """
        details = handler_call_details
        if self._source.is_shared:
            found = continuation(details)
            return found and self._asked_by_worker(found, details)
        sheddable = self._sheddable(details)
        queued = None if self._workers is None else QueuedCall(self._workers)
        try:
            permit = self._acquire(details, sheddable, queued)
        except BatchLimitError as error:
            return _refusing(refusal(error))
        if permit is None and queued is not None:
            return self._waiting(continuation, details, queued, sheddable)
        handler = None
        try:
            if found := continuation(details):
                handler = self._served(found, lambda context: permit, sheddable)
        finally:
            if handler is None:
                give_back(permit)
        return handler

    def _waiting(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], "Handler | None"],
        details: grpc.HandlerCallDetails,
        queued: QueuedCall,
        sheddable: bool,
    ) -> "Handler | None":
        """Return a handler that runs when the call has its place."""
        handler = None
        try:
            if found := continuation(details):
                handler = queued.handler(self._served(found, queued.permit_of, sheddable))
        finally:
            if handler is None:
                queued.forget()
        return handler

    def _asked_by_worker(self, found: Handler, details: grpc.HandlerCallDetails) -> Handler:
        """Return a handler whose worker acquires the permit, or refuses the call."""

        def permit_of(context: Any) -> Any:
            try:
                return self._acquire(details, sheddable=False)
            except BatchLimitError as error:
                refusal(error).end(context)
                raise

        return self._served(found, permit_of, may_end=True)

    def _served(self, found: Handler, permit_of: Callable[[Any], Any], may_end: bool) -> Handler:
        """Return a handler that serves a call under a permit.

        Args:
            found: The handler of the method.
            permit_of: Returns the permit in the worker, from the context of the call; an exception refuses the call.
            may_end: Whether the permit may end the call early.
        """
        held: list[Any] = []

        def begin(context: Any) -> Ending:
            held.append(permit := permit_of(context))
            HELD.set(permit)
            return Ending(context, completing(permit, self._outcome))

        if may_end:
            found = SheddableHandler(found, lambda: held[0]).handler()
        return Call(found, begin).handler()

    def _acquire(self, details: grpc.HandlerCallDetails, sheddable: bool, queued: QueuedCall | None = None) -> Any:
        """Return a permit; or None, if the queued call will be told."""
        options: dict[str, Any] = {} if self._is_keyed else {"sheddable": sheddable}
        options |= {"operation": details.method, "priority": self._priority(details)}
        if queued is None:
            return self._source.acquire(details, timeout=0, **options)
        back = queued.admitted, queued.refused
        return self._source.acquire_later(back, details, timeout=self._timeout, **options)


def _refusing(answer: Refusal) -> Handler:
    """Return a handler that refuses, whatever kind of method it stands for.

    As one whose requests stream it waits for none of them.
    """

    def refuse(requests: object, context: grpc.ServicerContext) -> None:
        answer.end(context)

    refuse.experimental_thread_pool = _AT_ONCE  # type: ignore[attr-defined]
    return grpc.stream_unary_rpc_method_handler(refuse)


def _at_once(do: Callable[[], Any]) -> "Future[Any]":
    """Refuse a call in the very thread that asked the interceptor: that blocks nowhere and takes microseconds."""
    done: Future[Any] = Future()
    done.set_result(do())
    return done


_AT_ONCE = OwnPool(_at_once)
