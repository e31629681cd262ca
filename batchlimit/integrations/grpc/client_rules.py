"""The calls of gRPC clients: rules held against them, and how many are under way at once."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError, ConcurrencyLimiter
from batchlimit.admission.permit import ASYNC, THREADED, give_back
from batchlimit.base.steps import Steps
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.integrations.address import AsyncIdentify, Identify
from batchlimit.integrations.enforcement import Outcome, Unidentified
from batchlimit.integrations.front import AsyncFront, Front
from batchlimit.integrations.grpc.answer import CallResponse, OutcomeOf, outcome_of, refused_by_limiter
from batchlimit.integrations.grpc.client_calls import Admits, AsyncEveryCall, Ended, EveryCall
from batchlimit.integrations.grpc.details import Asker, AsksForPermits, HoldsRules, Name, Source
from batchlimit.integrations.grpc.serving import completing
from batchlimit.integrations.permits import KeyOf, Limiter, refusal_of
from batchlimit.integrations.source import AsyncLimiterSource, LimiterSource, RulesSource


class _RatedCalls(HoldsRules[Source, Asker], Admits):
    """Calls of clients by rules, of either API."""

    def __init__(
        self,
        limiter: Source,
        rules: RulesSource,
        *,
        identify: Asker | None = None,
        wait: bool = False,
        timeout: float | None = None,
        unidentified: Unidentified = "refuse",
    ) -> None:
        super().__init__(limiter, rules, identify=identify, headers="off", unidentified=unidentified)
        self._wait_for(wait, timeout)

    def _admission(self, details: Any, timeout: float | None) -> Steps[Ended | None]:
        front = self._front
        outcome: Outcome = yield front.admit("POST", details.method, None, (), details, timeout=timeout)
        if outcome.refusal is not None:
            raise self._error(outcome.refusal)
        return (lambda *ended: front.settle(outcome, CallResponse.of(*ended))) if outcome.charges else None


class RateLimitClientInterceptor(_RatedCalls[LimiterSource, Identify[grpc.ClientCallDetails]], EveryCall):
    """Holds rules against the calls that a client makes: a call that is refused never leaves the process.

    It raises RefusedCall, as if the server had answered RESOURCE_EXHAUSTED; UNAVAILABLE while the store is away.

    Args:
        limiter, rules: as of RateLimitInterceptor; `charge` gets a CallResponse when the call has ended.
        identify: a function of the `grpc.ClientCallDetails` (`method`, `timeout`, `metadata`). It returns values for
            the keys, such as {"tenant": "ann"}, or None (default None: there are none).
        wait: whether calls wait for tokens instead of being refused, until their deadline at most (default False). A
            call that cannot be admitted until then is refused at once. `future` and streams wait before they return.
        timeout: seconds that a call waits at most; only with `wait` (default None: until its deadline).
        unidentified: as of RateLimitInterceptor (default "refuse").

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import grpc
        >>> from batchlimit.rules import Rule
        >>> limits = RateLimitClientInterceptor("memory://", [Rule("mail", "50/s", key="mail")], wait=True)
        >>> channel = grpc.intercept_channel(grpc.insecure_channel("localhost:50051"), limits)
        >>> channel.close()
    """

    _kind = Front


class AsyncRateLimitClient(_RatedCalls[AsyncLimiterSource, AsyncIdentify[Any]], AsyncEveryCall):
    """Holds rules against the calls of a client on asyncio, as RateLimitClientInterceptor does for threads.

    grpcio has an interceptor for each kind of method there, so this is four of them: `interceptors`. A call that is
    refused raises AsyncRefusedCall, a `grpc.aio.AioRpcError`.

    Args:
        limiter: as there, but an AsyncRateLimiter; `close` closes one that is made here.
        rules: as there; their `cost` and `charge` may be coroutine functions.
        identify: as there, or a coroutine function (default None).
        wait, timeout, unidentified: as there, with the same defaults.

    Attributes:
        interceptors: for `interceptors=` of a `grpc.aio` channel.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import grpc.aio
        >>> from batchlimit.rules import Rule
        >>> limits = AsyncRateLimitClient("memory://", [Rule("mail", "50/s", key="mail")], wait=True)
        >>> async with grpc.aio.insecure_channel("localhost:50051", interceptors=limits.interceptors):
        ...     pass
        >>> await limits.close()
    """

    _kind = AsyncFront
    _front: AsyncFront

    async def close(self) -> None:
        """Wait for what is being settled; close the limiter, if it was made here. Close the channel before."""
        if self._ends:
            await asyncio.wait(self._ends)
        await self._front.close()


class _BoundedCalls(AsksForPermits[Limiter], Admits):
    """Calls of clients by how many are under way, of either API."""

    def __init__(
        self,
        limiter: Limiter,
        *,
        partition: Name | None = None,
        key: KeyOf | None = None,
        outcome: OutcomeOf = outcome_of,
        priority: Callable[[Any], int] | None = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        super().__init__(limiter, partition=partition, key=key, outcome=outcome, priority=priority)
        self._wait_for(wait, timeout)

    def _admission(self, details: Any, timeout: float | None) -> Steps[Ended | None]:
        try:
            permit = yield self._permits.acquire(details, timeout=timeout, **self._options(details))
        except BatchLimitError as error:
            raise self._error(refusal_of(error), refused_by_limiter(error)) from error
        complete = completing(permit, self._outcome)
        # A call that could not be made gives its permit back.
        return lambda code, _, error: complete(code, None, 0) if error is None else give_back(permit)


class ConcurrencyClientInterceptor(_BoundedCalls[ConcurrencyLimiter | KeyedConcurrencyLimiter], EveryCall):
    """Lets a client have as many calls under way at once as the limiter lets; the others never leave the process.

    A call that is refused raises RefusedCall, as if the server had answered RESOURCE_EXHAUSTED. A call is under way
    until it has ended; a stream, until its last response was read or it was cancelled. The operation of a call is its
    method in full. For a limit for each method give a KeyedConcurrencyLimiter and `key=by_method`.

    Args:
        limiter: The limiter, keyed or not; its owner closes it.
        partition, key, outcome, priority: As of ConcurrencyInterceptor, with the same defaults. The functions get the
            `grpc.ClientCallDetails`, but for `outcome`.
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

    _kinds = THREADED


class AsyncConcurrencyClient(_BoundedCalls[AsyncConcurrencyLimiter | AsyncKeyedConcurrencyLimiter], AsyncEveryCall):
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
        >>> import grpc.aio
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> async with AsyncConcurrencyLimiter() as limiter:
        ...     limits = AsyncConcurrencyClient(limiter)
        ...     async with grpc.aio.insecure_channel("localhost:50051", interceptors=limits.interceptors):
        ...         pass
    """

    _kinds = ASYNC
