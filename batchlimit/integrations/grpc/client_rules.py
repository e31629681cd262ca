"""The calls of gRPC clients: rules held against them, and how many are under way at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError, ConcurrencyLimiter
from batchlimit.admission.permit import ASYNC, THREADED, give_back
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.integrations import source
from batchlimit.integrations.enforcement import Outcome, Unidentified
from batchlimit.integrations.front import AsyncFront, Front
from batchlimit.integrations.grpc.answer import CallResponse, OutcomeOf, outcome_of, refused_by_limiter
from batchlimit.integrations.grpc.client_calls import (
    AsyncEveryCall,
    AsyncRefusedCall,
    Ended,
    EveryCall,
    Patience,
    RefusedCall,
)
from batchlimit.integrations.grpc.details import CallPermits, HoldsRules, Name, equal_priority, no_partition
from batchlimit.integrations.grpc.serving import completing
from batchlimit.integrations.identity import Identity
from batchlimit.integrations.permits import KeyOf, refusal_of
from batchlimit.rules import Rule, RuleFile, Rules


class RateLimitClientInterceptor(HoldsRules, EveryCall):
    """Holds rules against the calls that a client makes: a call that is refused never leaves the process.

    It raises RefusedCall, as if the server had answered RESOURCE_EXHAUSTED; UNAVAILABLE while the store is away.

    Args:
        limiter: the URL of a store, or a function that makes a RateLimiter at the first call. Either is closed when the
            process ends. Or a RateLimiter with the quotas `rules.quotas`, which its owner closes.
        rules: Rules, several Rule, or a RuleFile. A call is a `POST` whose path is its method in full. Their `charge`
            gets a CallResponse when the call has ended.
        identify: a function of the `grpc.ClientCallDetails` (`method`, `timeout`, `metadata`). It returns values for
            the keys, such as {"tenant": "ann"}, or None (default None: there are none).
        wait: whether calls wait for tokens instead of being refused, until their deadline at most (default False). A
            call that cannot be admitted until then is refused at once. `future` and streams wait before they return.
        timeout: seconds that a call waits at most; only with `wait` (default None: until its deadline).
        unidentified: what becomes of a call of which a rule cannot make the key: "refuse" (default) or "admit".

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import grpc
        >>> from batchlimit.integrations.grpc import RateLimitClientInterceptor
        >>> from batchlimit.rules import Rule
        >>> limits = RateLimitClientInterceptor("memory://", [Rule("mail", "50/s", key="mail")], wait=True)
        >>> channel = grpc.intercept_channel(grpc.insecure_channel("localhost:50051"), limits)
        >>> channel.close()
    """

    _front: Front

    def __init__(
        self,
        limiter: source.LimiterSource,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[[grpc.ClientCallDetails], Identity | None] | None = None,
        wait: bool = False,
        timeout: float | None = None,
        unidentified: Unidentified = "refuse",
    ) -> None:
        super().__init__(Patience(wait, timeout))
        self._front = Front(limiter, rules, identify=identify, headers="off", unidentified=unidentified)

    def _admit(self, details: Any, timeout: float | None) -> Ended | None:
        outcome = self._front.admit("POST", details.method, None, (), details, timeout=timeout)
        if outcome.refusal is not None:
            raise RefusedCall(outcome.refusal)
        return _charging(self._front, outcome)


class AsyncRateLimitClient(HoldsRules, AsyncEveryCall):
    """Holds rules against the calls of a client on asyncio, as RateLimitClientInterceptor does for threads.

    grpcio has an interceptor for each kind of method there, so this is four of them: `interceptors`. A call that is
    refused raises AsyncRefusedCall, a `grpc.aio.AioRpcError`.

    Args:
        limiter: the URL of a store, or a function that makes an AsyncRateLimiter at the first call; `close` closes it.
            Or an AsyncRateLimiter with the quotas `rules.quotas`, which its owner closes.
        rules: Rules, several Rule, or a RuleFile. `cost` and `charge` of these may be coroutine functions here.
        identify: as for RateLimitClientInterceptor; it may be a coroutine function (default None).
        wait, timeout, unidentified: as there, with the same defaults.

    Attributes:
        interceptors: for `interceptors=` of a `grpc.aio` channel.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import asyncio
        >>> import grpc.aio
        >>> from batchlimit.integrations.grpc import AsyncRateLimitClient
        >>> from batchlimit.rules import Rule
        >>> async def main() -> None:
        ...     limits = AsyncRateLimitClient("memory://", [Rule("mail", "50/s", key="mail")], wait=True)
        ...     async with grpc.aio.insecure_channel("localhost:50051", interceptors=limits.interceptors):
        ...         ...
        ...     await limits.close()
        >>> asyncio.run(main())
    """

    _front: AsyncFront

    def __init__(
        self,
        limiter: source.AsyncLimiterSource,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[[Any], Identity | Awaitable[Identity | None] | None] | None = None,
        wait: bool = False,
        timeout: float | None = None,
        unidentified: Unidentified = "refuse",
    ) -> None:
        super().__init__(Patience(wait, timeout))
        self._front = AsyncFront(limiter, rules, identify=identify, headers="off", unidentified=unidentified)

    async def close(self) -> None:
        """Wait for what is being settled; close the limiter, if it was made here. Close the channel before."""
        if self._ends:
            await asyncio.wait(self._ends)
        await self._front.close()

    async def _admit(self, details: Any, timeout: float | None) -> Ended | None:
        outcome = await self._front.admit("POST", details.method, None, (), details, timeout=timeout)
        if outcome.refusal is not None:
            raise AsyncRefusedCall(outcome.refusal)
        return _charging(self._front, outcome)


def _charging(front: Front | AsyncFront, outcome: Outcome) -> Ended | None:
    """Return what charges a call by its response; None: no rule needs that."""
    return (lambda *ended: front.settle(outcome, CallResponse.of(*ended))) if outcome.charges else None


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
            permit = self._permits.acquire(details, timeout=timeout, **self._permits.options(details))
            return _completing(permit, self._outcome)
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
            permit = await self._permits.acquire(details, timeout=timeout, **self._permits.options(details))
            return _completing(permit, self._outcome)
        except BatchLimitError as error:
            raise AsyncRefusedCall(refusal_of(error), refused_by_limiter(error)) from error


def _completing(permit: Any, outcome: OutcomeOf) -> Ended:
    """Return what completes a permit by the status of its call; a call that could not be made gives it back."""
    complete = completing(permit, outcome)
    return lambda code, _, error: complete(code, None, 0) if error is None else give_back(permit)
