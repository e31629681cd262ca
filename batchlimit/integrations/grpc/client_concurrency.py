"""How many calls a gRPC client has under way at once: an interceptor for threads, and those for asyncio."""

from collections.abc import Callable
from typing import Any

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError, ConcurrencyLimiter
from batchlimit.admission.permit import ASYNC, THREADED, give_back
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.integrations.grpc.answer import OutcomeOf, outcome_of, refused_by_limiter
from batchlimit.integrations.grpc.client_calls import AsyncEveryCall, Ended, EveryCall, Patience
from batchlimit.integrations.grpc.details import CallPermits, Name, equal_priority, no_partition
from batchlimit.integrations.grpc.refused import AsyncRefusedCall, RefusedCall
from batchlimit.integrations.grpc.serving import completing
from batchlimit.integrations.permit_source import KeyOf
from batchlimit.integrations.permits import refusal_of


class ConcurrencyClientInterceptor(EveryCall):
    """Lets a client have as many calls under way at once as the limiter lets; the others never leave the process.

    A call that is refused raises RefusedCall, as if the server had answered RESOURCE_EXHAUSTED. A call is under way
    until it has ended; a stream, until its last response was read or it was cancelled. The operation of a call is its
    method in full. For a limit for each method give a KeyedConcurrencyLimiter and `key=by_method`.

    Args:
        limiter: The limiter, keyed or not; its owner closes it.
        partition: Returns the name of a call's partition, from its `grpc.ClientCallDetails` (default: no name).
        key: Returns the key of a call, or several keys, for a keyed limiter (default None: the limiter has no keys).
        outcome: Returns what a status tells about the load (default `outcome_of`).
        priority: Returns the priority of a call: high ones are served first in the queue (default: the same for all).
        wait: Whether calls wait in the queue of the limiter, until their deadline at most (default False). `future` and
            streams wait before they return.
        timeout: Seconds that a call waits at most; only with `wait` (default None: until its deadline).

    Raises:
        TypeError: `key` does not go with the limiter.
        ValueError: `timeout` is below 0, or comes without `wait`.

    Example:
        >>> import grpc
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> from batchlimit.integrations.grpc import ConcurrencyClientInterceptor, by_method
        >>> limiter = KeyedConcurrencyLimiter({"/shop.Orders/*": 5, "*": 20})
        >>> limits = ConcurrencyClientInterceptor(limiter, key=by_method)
        >>> channel = grpc.intercept_channel(grpc.insecure_channel("localhost:50051"), limits)
        >>> channel.close()
        >>> limiter.close()
    """

    def __init__(
        self,
        limiter: ConcurrencyLimiter | KeyedConcurrencyLimiter,
        *,
        partition: Name = no_partition,
        key: KeyOf | None = None,
        outcome: OutcomeOf = outcome_of,
        priority: Callable[[Any], int] = equal_priority,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        super().__init__(Patience(wait, timeout))
        self._permits, self._outcome = CallPermits(THREADED, limiter, partition, key, priority), outcome

    def __repr__(self) -> str:
        return f"<ConcurrencyClientInterceptor of {self._permits!r}>"

    def _admit(self, details: Any, timeout: float | None) -> Ended:
        try:
            return _completing(self._permits.acquire(details, timeout=timeout), self._outcome)
        except BatchLimitError as error:
            raise RefusedCall(refusal_of(error), refused_by_limiter(error)) from error


class AsyncConcurrencyClient(AsyncEveryCall):
    """Lets a client have as many calls under way at once as the limiter lets, as ConcurrencyClientInterceptor.

    grpcio has an interceptor for each kind of method there, so this is four of them: `interceptors`. A call that is
    refused raises AsyncRefusedCall, a `grpc.aio.AioRpcError`.

    Args:
        limiter: The limiter, keyed or not; its owner closes it, after the channel.
        partition, key, outcome, priority, wait, timeout: As there, with the same defaults.

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
        partition: Name = no_partition,
        key: KeyOf | None = None,
        outcome: OutcomeOf = outcome_of,
        priority: Callable[[Any], int] = equal_priority,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        super().__init__(Patience(wait, timeout))
        self._permits, self._outcome = CallPermits(ASYNC, limiter, partition, key, priority), outcome

    def __repr__(self) -> str:
        return f"<AsyncConcurrencyClient of {self._permits!r}>"

    async def _admit(self, details: Any, timeout: float | None) -> Ended:
        try:
            return _completing(await self._permits.acquire(details, timeout=timeout), self._outcome)
        except BatchLimitError as error:
            raise AsyncRefusedCall(refusal_of(error), refused_by_limiter(error)) from error


def _completing(permit: Any, outcome: OutcomeOf) -> Ended:
    """Return what completes a permit by the status of its call; a call that could not be made gives it back."""
    complete = completing(permit, outcome)
    return lambda code, _, error: complete(code, None, 0) if error is None else give_back(permit)
