"""AsyncRateLimitClient: rules held against the calls that a client on asyncio makes."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import grpc
import grpc.aio

from batchlimit.integrations.async_front import AsyncFront
from batchlimit.integrations.async_source import LimiterSource
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import Outcome, Unidentified
from batchlimit.integrations.grpc.answer import CallResponse
from batchlimit.integrations.grpc.async_every_call import KINDS, Continuation, Endings, named
from batchlimit.integrations.grpc.every_call import Patience
from batchlimit.integrations.grpc.refused_call import AsyncRefusedCall
from batchlimit.integrations.identity import Identity
from batchlimit.rules import Rule, RuleFile, Rules


class AsyncRateLimitClient:
    """Holds rules against the calls of a client on asyncio, as RateLimitClientInterceptor does for threads.

    grpcio has an interceptor for each kind of method there, so this is four of them: `interceptors`. A call that is
    refused raises AsyncRefusedCall, a `grpc.aio.AioRpcError`.

    Args:
        limiter: the URL of a store, or a function that makes an AsyncRateLimiter at the first call; `close` closes it.
            Or an AsyncRateLimiter with the quotas `rules.quotas`, which its owner closes.
        rules: Rules, several Rule, or a RuleFile. `cost` and `charge` of these may be coroutine functions here.
        identify: as for RateLimitClientInterceptor; it may be a coroutine function (default None).
        wait: whether calls wait for their tokens instead of being refused (default False).
        timeout: seconds that a call waits at most (default None: until its own deadline).
        unidentified: what becomes of a call of which a rule cannot make the key: "refuse" (default) or "admit".

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

    def __init__(
        self,
        limiter: LimiterSource,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[[Any], Identity | Awaitable[Identity | None] | None] | None = None,
        wait: bool = False,
        timeout: float | None = None,
        unidentified: Unidentified = "refuse",
    ) -> None:
        self._patience = Patience(wait, timeout)
        self._front = AsyncFront(limiter, rules, identify=identify, headers="off", unidentified=unidentified)
        self._endings = Endings()
        self.interceptors: Sequence[grpc.aio.ClientInterceptor] = [kind(self._intercept) for kind in KINDS]

    def __repr__(self) -> str:
        return f"<AsyncRateLimitClient {self._front.enforcer.rules}>"

    def statistics(self) -> EnforcementStatistics:
        """Return what became of the calls so far, by rule.

        Returns:
            The EnforcementStatistics of this process.
        """
        return self._front.statistics()

    async def close(self) -> None:
        """Wait for what is being settled; close the limiter, if it was made here. Close the channel before."""
        await self._endings.wait()
        await self._front.close()

    async def _intercept(self, continuation: Continuation, details: Any, request: Any) -> Any:
        began, timeout = time.monotonic(), self._patience.of(details.timeout)
        known = named(details)
        outcome = await self._front.admit("POST", known.method, None, (), known, timeout=timeout)
        if outcome.refusal is not None:
            raise AsyncRefusedCall(outcome.refusal)
        try:
            call = await continuation(self._patience.rest(details, time.monotonic() - began), request)
        except BaseException as error:
            self._front.settle(outcome, CallResponse.of(grpc.StatusCode.UNKNOWN, error=error))
            raise
        if outcome.charges:
            self._settle_at_the_end(outcome, call)
        return call

    def _settle_at_the_end(self, outcome: Outcome, call: Any) -> None:
        async def settle() -> None:
            self._front.settle(outcome, CallResponse.of(await call.code(), await call.trailing_metadata()))

        self._endings.after(call, settle)
