"""AsyncRateLimitInterceptor: rules held against the calls of a gRPC server on asyncio."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Unpack

import grpc
import grpc.aio

from batchlimit.integrations.arguments import Options
from batchlimit.integrations.async_front import AsyncFront
from batchlimit.integrations.async_source import LimiterSource
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.grpc.answer import address_of, ended_with, fields_of, metadata_of, refusal_of
from batchlimit.integrations.grpc.async_call import AsyncMethod
from batchlimit.integrations.grpc.call import Handler
from batchlimit.integrations.grpc.held import spare
from batchlimit.integrations.identity import Identity
from batchlimit.rules import Request, Rule, RuleFile, Rules


class AsyncRateLimitInterceptor(grpc.aio.ServerInterceptor):
    """Holds rules against every call of a server on asyncio, as RateLimitInterceptor does for threads.

    Handlers are coroutine functions or async generator functions.

    Args:
        limiter: the URL of a store, or a function that makes an AsyncRateLimiter at the first call; `close` closes it.
            Or an AsyncRateLimiter with the quotas `rules.quotas`, which its owner closes.
        rules: Rules, several Rule, or a RuleFile. `cost` and `charge` of these may be coroutine functions here.
        identify: as for RateLimitInterceptor; it may be a coroutine function (default None: keys have `ip` alone).
        headers: as there (default "draft-11").
        proxies: as there (default None).
        ipv6_prefix: as there (default 56).
        unidentified: as there (default "refuse").
        messages: as there (default none).
        checks: as there (default True).

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import asyncio
        >>> import grpc.aio
        >>> from batchlimit.integrations.grpc import AsyncRateLimitInterceptor
        >>> from batchlimit.rules import Rule
        >>> rules = [Rule("orders", "100/s burst 200", key="orders:{ip}", match="/shop.Orders/*")]
        >>> async def main() -> None:
        ...     limits = AsyncRateLimitInterceptor("memory://", rules)
        ...     server = grpc.aio.server(interceptors=[limits])
        ...     await server.stop(None)
        ...     await limits.close()
        >>> asyncio.run(main())
    """

    def __init__(
        self,
        limiter: LimiterSource,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[[Any], Identity | Awaitable[Identity | None] | None] | None = None,
        messages: Rules | Iterable[Rule] = (),
        **options: Unpack[Options],
    ) -> None:
        self._front = AsyncFront(limiter, rules, identify=identify, messages=messages, **options)

    def __repr__(self) -> str:
        return f"<AsyncRateLimitInterceptor {self._front.enforcer.rules}>"

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Put the rules before the handler; grpcio calls this.

        Args:
            continuation: Returns the handler of the call.
            handler_call_details: Its method and its metadata.

        Returns:
            The handler behind the rules.
        """
        handler = await continuation(handler_call_details) or _MISSING
        return _LimitedCall(self._front, handler_call_details.method, handler).handler()

    def statistics(self) -> EnforcementStatistics:
        """Return what became of the calls so far, by rule; the rules for messages count messages.

        Returns:
            The EnforcementStatistics of this process.
        """
        return self._front.statistics()

    async def close(self) -> None:
        """Wait for what is being settled; close the limiter, if it was made here. Stop the server before."""
        await self._front.close()


class _LimitedCall:
    """One call, and what the rules say of it."""

    __slots__ = ("_front", "_limits_messages", "_method", "_name")

    def __init__(self, front: AsyncFront, name: str, handler: Handler) -> None:
        self._front, self._name, self._method = front, name, AsyncMethod(handler)
        self._limits_messages = front.limits_messages and handler.request_streaming

    def handler(self) -> Handler:
        return self._method.served_by(self._serve)

    async def _serve(self, requests: AsyncIterator[Any], context: Any) -> Any:
        fields = fields_of(context.invocation_metadata())
        outcome = await self._front.admit("POST", self._name, address_of(context.peer()), fields, context)
        if outcome.refusal is not None:
            spare()
            await refusal_of(outcome.refusal).end_async(context)
        if outcome.headers:
            context.set_trailing_metadata(metadata_of(outcome.headers))

        if not outcome.charges and not self._limits_messages:
            return await self._method.run(requests, context, _nobody_cares)
        watched = _WatchedContext(context, self._front, outcome.request if self._limits_messages else None)

        def ended(code: grpc.StatusCode | None, error: BaseException | None, sent: int) -> None:
            if outcome.charges:
                self._front.settle(outcome, ended_with(context, code, error, max(sent, watched.sent)))

        return await self._method.run(watched.requests() if self._limits_messages else requests, watched, ended)


def _nobody_cares(code: grpc.StatusCode | None, error: BaseException | None, sent: int) -> None: ...


class _WatchedContext:
    """The context of a call whose messages are charged and counted, however the handler reads and writes them."""

    def __init__(self, context: Any, front: AsyncFront, request: Request | None) -> None:
        self._context, self._front, self._request, self.sent = context, front, request, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        """Send a message."""
        await self._context.write(message)
        self.sent += 1

    async def read(self) -> Any:
        """Return the next message; or end the call, if the message is refused."""
        message = await self._context.read()
        if message is grpc.aio.EOF:
            return message
        if (refused := await self._front.refused_message(self._request)) is not None:
            await refusal_of(refused).end_async(self._context)
        return message

    async def requests(self) -> AsyncIterator[Any]:
        """Yield the messages."""
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message


async def _missing(requests: object, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


_MISSING: Handler = grpc.stream_unary_rpc_method_handler(_missing)
