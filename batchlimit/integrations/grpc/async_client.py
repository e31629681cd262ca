"""AsyncRateLimitClient: rules held against the calls that a client on asyncio makes."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from batchlimit.integrations.async_front import AsyncFront
from batchlimit.integrations.async_source import LimiterSource
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import Unidentified
from batchlimit.integrations.grpc.async_every_call import AsyncEveryCall
from batchlimit.integrations.grpc.every_call import Patience, Tell, charged
from batchlimit.integrations.grpc.refused_call import AsyncRefusedCall
from batchlimit.integrations.identity import Identity
from batchlimit.rules import Rule, RuleFile, Rules


class AsyncRateLimitClient(AsyncEveryCall):
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
        super().__init__(Patience(wait, timeout))
        self._front = AsyncFront(limiter, rules, identify=identify, headers="off", unidentified=unidentified)

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
        await self._ended()
        await self._front.close()

    async def _admit(self, details: Any, timeout: float | None) -> Tell | None:
        outcome = await self._front.admit("POST", details.method, None, (), details, timeout=timeout)
        if outcome.refusal is not None:
            raise AsyncRefusedCall(outcome.refusal)
        return charged(self._front, outcome)
