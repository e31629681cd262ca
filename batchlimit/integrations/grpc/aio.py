"""AsyncConcurrencyInterceptor: limits the calls of a gRPC server on asyncio."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError
from batchlimit.admission.permit import ASYNC, give_back
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter
from batchlimit.integrations.grpc.async_call import AsyncCall
from batchlimit.integrations.grpc.call import Handler
from batchlimit.integrations.grpc.details import Name, alike, never, nobody
from batchlimit.integrations.grpc.status import OutcomeOf, Refusal, outcome_of, refusal
from batchlimit.integrations.permit_source import KeyOf, PermitSource
from batchlimit.shared import AsyncSharedConcurrencyLimiter


class AsyncConcurrencyInterceptor(grpc.aio.ServerInterceptor):
    """Lets as many calls in at once as the limiter lets; refuses the others before their requests are read.

    A call that finds no room waits in the limiter's queue, if there is one, until its client gives up. A call is under
    way until its handler has returned or raised, or its stream has ended. Handlers are coroutine functions or async
    generator functions: for others there is the threaded server. The operation of a call is its method in full.

    Args:
        limiter: The limiter: by key, shared by key, or one limit for all. It may serve others too. A call whose shared
            permit is lost is cancelled, and ends with UNAVAILABLE.
        partition: Returns the name of a call's partition (default: no name, so the call gets what is spare).
        key: Returns the key of a call, for a limiter by key, or several keys for a keyed one (default None: the limiter
            has no keys). A call is refused if it raises.
        outcome: Returns what a status tells about the load (default `outcome_of`). `classify` of the limiter judges an
            exception that ends a handler without a status.
        sheddable: Returns whether the limiter may cancel the handler of a call; see Shedding (default: of none).
        priority: Returns the priority of a call: high ones are served first in the queue, low ones are shed first
            (default: the same for all).

    Example:
        >>> import asyncio
        >>> import grpc.aio
        >>> from batchlimit import AsyncConcurrencyLimiter, Queue
        >>> from batchlimit.integrations.grpc import AsyncConcurrencyInterceptor
        >>> async def main() -> None:
        ...     async with AsyncConcurrencyLimiter(queue=Queue(100)) as limiter:
        ...         server = grpc.aio.server(interceptors=[AsyncConcurrencyInterceptor(limiter)])
        ...         await server.stop(None)
        >>> asyncio.run(main())
    """

    def __init__(
        self,
        limiter: AsyncConcurrencyLimiter | AsyncKeyedConcurrencyLimiter | AsyncSharedConcurrencyLimiter,
        *,
        partition: Name = nobody,
        key: KeyOf | None = None,
        outcome: OutcomeOf = outcome_of,
        sheddable: Callable[[grpc.HandlerCallDetails], bool] = never,
        priority: Callable[[grpc.HandlerCallDetails], int] = alike,
    ) -> None:
        if key is not None and sheddable is not never:
            raise TypeError("sheddable= is for a limiter without keys")
        self._is_keyed, self._source = key is not None, PermitSource(ASYNC, limiter, partition, key)
        self._outcome = outcome
        self._sheddable, self._priority = sheddable, priority

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._source!r}>"

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Let a call in, or refuse it; grpcio calls this.

        Args:
            continuation: Returns the handler of the call.
            handler_call_details: Its method and its metadata.

        Returns:
            The handler to be served under a permit, or one that refuses; None if there is no such method.
        """
        try:
            permit = await self._acquire(handler_call_details)
        except BatchLimitError as error:
            return _refusing(refusal(error))
        handler = None
        try:
            if found := await continuation(handler_call_details):
                handler = AsyncCall(found, permit, self._outcome).handler()
        finally:
            if handler is None:
                give_back(permit)
        return handler

    def _acquire(self, details: grpc.HandlerCallDetails) -> Any:
        options: dict[str, Any] = {} if self._is_keyed else {"sheddable": self._sheddable(details)}
        return self._source.acquire(details, operation=details.method, priority=self._priority(details), **options)


def _refusing(answer: Refusal) -> Handler:
    """Return a handler that refuses, whatever kind of method it stands for.

    As one whose requests stream it waits for none of them.
    """

    async def refuse(requests: object, context: Any) -> None:
        await answer.end_async(context)

    return grpc.stream_unary_rpc_method_handler(refuse)
