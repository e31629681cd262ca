"""The rules before the calls that a gRPC client makes: an interceptor for threads, and those for asyncio."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

from batchlimit.integrations import async_source, source
from batchlimit.integrations.async_front import AsyncFront
from batchlimit.integrations.enforcement import Outcome, Unidentified
from batchlimit.integrations.front import Front
from batchlimit.integrations.grpc.answer import CallResponse
from batchlimit.integrations.grpc.client_calls import AsyncEveryCall, Ended, EveryCall, Patience
from batchlimit.integrations.grpc.details import HoldsRules
from batchlimit.integrations.grpc.refused import AsyncRefusedCall, RefusedCall
from batchlimit.integrations.identity import Identity
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
        limiter: async_source.LimiterSource,
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
        await self._all_ended()
        await self._front.close()

    async def _admit(self, details: Any, timeout: float | None) -> Ended | None:
        outcome = await self._front.admit("POST", details.method, None, (), details, timeout=timeout)
        if outcome.refusal is not None:
            raise AsyncRefusedCall(outcome.refusal)
        return _charging(self._front, outcome)


def _charging(front: Front | AsyncFront, outcome: Outcome) -> Ended | None:
    """Return what charges a call by its response; None: no rule needs that."""
    return (lambda *ended: front.settle(outcome, CallResponse.of(*ended))) if outcome.charges else None
