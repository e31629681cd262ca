"""The rules before the calls of a gRPC server: an interceptor for threads, and one for asyncio."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from batchlimit.admission.permit import give_back
from batchlimit.base.steps import Steps, drive
from batchlimit.base.steps import run as run_steps
from batchlimit.integrations.address import AsyncIdentify, Identify
from batchlimit.integrations.enforcement import Outcome
from batchlimit.integrations.front import AsyncFront, Front
from batchlimit.integrations.grpc import serving
from batchlimit.integrations.grpc.answer import CallRefusal, CallResponse, address_of, fields_of, refused_by_rules
from batchlimit.integrations.grpc.details import HELD, Changed, HoldsRules
from batchlimit.integrations.headers import texts
from batchlimit.integrations.source import AsyncLimiterSource, LimiterSource
from batchlimit.rules import Request


class RateLimitInterceptor(HoldsRules[LimiterSource, Identify[grpc.ServicerContext]], grpc.ServerInterceptor):
    """Holds rules against every call of a threaded server, before the handler and before its request is read.

    All rules that match are charged at once, or none of them. A call is a `POST` whose path is its method in full, as
    in `match="/shop.Orders/*"`. A call that a rule refuses ends with RESOURCE_EXHAUSTED, with `retry-after`,
    `grpc-retry-pushback-ms` and `google.rpc.RetryInfo`; with UNAVAILABLE while the store is away; with UNAUTHENTICATED
    if a key cannot be made. A call to a method that is not there is charged too.

    A worker thread asks the rules: the thread that takes in all calls is never held up by a store.

    Args:
        limiter, rules: as of RateLimitMiddleware of `batchlimit.integrations.wsgi`; the `charge` of the rules gets a
            CallResponse.
        identify: a function of the `grpc.ServicerContext`. It returns values for the keys, such as {"user": "ann"}, or
            None (default None: keys have `ip` alone). If it raises, the rules that need more than `ip` have no key.
        messages: Rules for each message that a stream of requests brings, matched by the method (default none). The
            first one that is refused ends the call.
        headers, proxies, ipv6_prefix, unidentified, checks, enabled: as of that of `batchlimit.integrations.asgi`, with
            the same defaults. The header fields are trailing metadata of calls that are admitted; a handler that sets
            trailing metadata replaces them.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import grpc
        >>> from batchlimit.rules import Rule
        >>> rules = [Rule("orders", "100/s burst 200", key="orders:{ip}", match="/shop.Orders/*")]
        >>> with ThreadPoolExecutor(4) as workers:
        ...     server = grpc.server(workers, interceptors=[RateLimitInterceptor("memory://", rules)])
        ...     server.stop(None).wait()
        True
    """

    _kind = Front
    _front: Front

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """Put the rules before the handler; grpcio calls this."""
        handler = continuation(handler_call_details) or _MISSING
        outcome = Outcome()

        def begin(context: Any) -> serving.CallEnd:
            nonlocal outcome
            outcome = run_steps(_admitted(self._front, handler_call_details.method, context, context.is_active()))
            return serving.CallEnd(context, _charging(self._front, outcome, context))

        def limited(messages: Iterator[Any], context: Any) -> Iterator[Any]:
            for message in messages:
                if (refused := self._front.refused_message(outcome.request)) is not None:
                    refused_by_rules(refused).end(context)
                yield message

        limits = self._front.of_messages is not None and handler.request_streaming
        return serving.served(handler, begin, limited if limits else None)


class AsyncRateLimitInterceptor(HoldsRules[AsyncLimiterSource, AsyncIdentify[Any]], grpc.aio.ServerInterceptor):
    """Holds rules against every call of a server on asyncio, as RateLimitInterceptor does for threads.

    Handlers are coroutine functions or async generator functions.

    Args:
        limiter: as there, but an AsyncRateLimiter; `close` closes one that is made here.
        rules: as there; their `cost` and `charge` may be coroutine functions.
        identify: as there, or a coroutine function (default None).
        messages, headers, proxies, ipv6_prefix, unidentified, checks, enabled: as there, with the same defaults.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import grpc.aio
        >>> from batchlimit.rules import Rule
        >>> rules = [Rule("orders", "100/s burst 200", key="orders:{ip}", match="/shop.Orders/*")]
        >>> limits = AsyncRateLimitInterceptor("memory://", rules)
        >>> server = grpc.aio.server(interceptors=[limits])
        >>> await server.stop(None)
        >>> await limits.close()
    """

    _kind = AsyncFront
    _front: AsyncFront

    async def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """Put the rules before the handler; grpcio calls this."""
        handler = await continuation(handler_call_details) or _ASYNC_MISSING
        run = serving.served_async(handler)
        limits = self._front.of_messages is not None and handler.request_streaming

        async def serve(requests: AsyncIterator[Any], context: Any) -> Any:
            outcome = await drive(_admitted(self._front, handler_call_details.method, context))
            if outcome.refusal is not None:
                return None
            ended = _charging(self._front, outcome, context)
            if not outcome.charges and not limits:
                return await run(requests, context, ended)
            watched = _WatchedContext(context, self._front, outcome.request if limits else None)

            return await run(
                watched.requests() if limits else requests,
                watched,
                lambda code, error, sent: ended(code, error, max(sent, watched.sent)),
            )

        return serving.streaming_async(handler, serve)

    async def close(self) -> None:
        """Wait for what is being settled; close the limiter, if it was made here. Stop the server before."""
        await self._front.close()


class _WatchedContext(Changed):
    """The context of a call whose messages are charged and counted, however the handler reads and writes them."""

    def __init__(self, context: Any, front: AsyncFront, request: Request | None) -> None:
        super().__init__(context)
        self._front, self._request, self.sent = front, request, 0

    async def write(self, message: Any) -> None:
        """Send a message."""
        await self._of.write(message)
        self.sent += 1

    async def read(self) -> Any:
        """Return the next message; or end the call, if the message is refused."""
        message = await self._of.read()
        if message is grpc.aio.EOF:
            return message
        if (refused := await self._front.refused_message(self._request)) is not None:
            await refused_by_rules(refused).end(self._of)
        return message

    async def requests(self) -> AsyncIterator[Any]:
        """Yield the messages."""
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message


def _admitted(front: Front | AsyncFront, method: str, context: Any, is_active: bool = True) -> Steps[Outcome]:
    """Charge a call, or refuse it. An error that refused it would keep on asyncio what the interceptors behind hold."""
    if not (peer := context.peer()) or not is_active:  # its client has left, or its time is over
        yield context.abort(grpc.StatusCode.CANCELLED, "The client has left!")
    address, fields = address_of(peer), fields_of(context.invocation_metadata())
    outcome: Outcome = yield front.admit("POST", method, address, fields, context)
    if outcome.refusal is not None:
        if (permit := HELD.get()) is not None:
            give_back(permit)  # its status tells nothing about the load
        answer = refused_by_rules(outcome.refusal)
        yield answer.tell(context) if isinstance(front, AsyncFront) else answer.end(context)
    elif outcome.headers:
        context.set_trailing_metadata(tuple(texts(outcome.headers)))
    return outcome


def _charging(front: Front | AsyncFront, outcome: Outcome, context: Any) -> serving.Ended:
    """Return what charges a call by its response, if a rule needs that."""

    def ended(code: grpc.StatusCode | None, error: BaseException | None, sent: int) -> None:
        if outcome.charges:
            status = code or (grpc.StatusCode.OK if error is None else grpc.StatusCode.UNKNOWN)  # as grpcio says
            front.settle(outcome, CallResponse.of(status, context.trailing_metadata(), error, sent))

    return ended


_NO_METHOD = CallRefusal(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ())
_MISSING: serving.Handler = grpc.stream_unary_rpc_method_handler(lambda _, context: _NO_METHOD.end(context))
_ASYNC_MISSING = serving.refusing_async(_NO_METHOD)
