"""AsyncConcurrencyClient: how many calls a client on asyncio has under way at once."""

from collections.abc import Callable
from typing import Any

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError
from batchlimit.admission.permit import ASYNC
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter
from batchlimit.integrations.grpc.async_every_call import AsyncEveryCall
from batchlimit.integrations.grpc.details import Name, alike, nobody
from batchlimit.integrations.grpc.every_call import Patience, Tell, completed
from batchlimit.integrations.grpc.refused_call import AsyncRefusedCall
from batchlimit.integrations.grpc.status import OutcomeOf, outcome_of, refusal
from batchlimit.integrations.permit_source import KeyOf, PermitSource
from batchlimit.integrations.permits import refusal_of


class AsyncConcurrencyClient(AsyncEveryCall):
    """Lets a client have as many calls under way at once as the limiter lets, as ConcurrencyClientInterceptor.

    grpcio has an interceptor for each kind of method there, so this is four of them: `interceptors`. A call that is
    refused raises AsyncRefusedCall, a `grpc.aio.AioRpcError`.

    Args:
        limiter: The limiter, keyed or not; its owner closes it, after the channel.
        partition: As for ConcurrencyClientInterceptor (default: no name).
        key: As for ConcurrencyClientInterceptor (default None).
        outcome: Returns what a status tells about the load (default `outcome_of`).
        priority: Returns the priority of a call: high ones are served first in the queue (default: the same for all).
        wait: Whether calls wait in the queue of the limiter, until their deadline at most (default False).
        timeout: Seconds that a call waits at most; only with `wait` (default None: until its deadline).

    Attributes:
        interceptors: For `interceptors=` of a `grpc.aio` channel.

    Raises:
        TypeError: `key` does not go with the limiter.
        ValueError: `timeout` is below 0, or comes without `wait`.

    Example:
        >>> import asyncio
        >>> import grpc.aio
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> from batchlimit.integrations.grpc import AsyncConcurrencyClient
        >>> async def main() -> None:
        ...     async with AsyncConcurrencyLimiter() as limiter:
        ...         limits = AsyncConcurrencyClient(limiter)
        ...         async with grpc.aio.insecure_channel("localhost:50051", interceptors=limits.interceptors):
        ...             ...
        >>> asyncio.run(main())
    """

    def __init__(
        self,
        limiter: AsyncConcurrencyLimiter | AsyncKeyedConcurrencyLimiter,
        *,
        partition: Name = nobody,
        key: KeyOf | None = None,
        outcome: OutcomeOf = outcome_of,
        priority: Callable[[Any], int] = alike,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        super().__init__(Patience(wait, timeout))
        self._source = PermitSource(ASYNC, limiter, partition, key)
        self._outcome, self._priority = outcome, priority

    def __repr__(self) -> str:
        return f"<AsyncConcurrencyClient of {self._source!r}>"

    async def _admit(self, details: Any, timeout: float | None) -> Tell:
        options = {"operation": details.method, "priority": self._priority(details)}
        try:
            permit = await self._source.acquire(details, timeout=timeout, **options)
        except BatchLimitError as error:
            raise AsyncRefusedCall(refusal_of(error), refusal(error)) from error
        return completed(permit, self._outcome)
