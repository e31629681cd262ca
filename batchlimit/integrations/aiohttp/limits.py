"""Limits: rules held against the requests and websockets of an aiohttp application; and what its handlers ask for."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, Unpack
from weakref import proxy

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from batchlimit.integrations.address import AsyncIdentify
from batchlimit.integrations.carried import PERMIT, give_back_permit
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import HOLD_NAME, Outcome, Refusal, Response, unprotected
from batchlimit.integrations.enforcement.plan import limit_for_route, mark, marks_of
from batchlimit.integrations.front import AsyncFront, WebOptions, wanted
from batchlimit.integrations.headers import Header, texts
from batchlimit.integrations.source import AsyncLimiterSource, RulesSource
from batchlimit.rules import Rule, Rules
from batchlimit.rules.rule import ChargeSetting, RuleCost

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OnRejected = Callable[[web.Request, Refusal], web.StreamResponse | Awaitable[web.StreamResponse]]
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


class Limits:
    """Holds rules against every request and every handshake of a websocket, before a handler is called.

    It charges, refuses and answers as RateLimitMiddleware of `batchlimit.integrations.asgi` does, which says more.

    Args:
        limiter, rules: as there.
        identify: a function of the `web.Request`, as that of the scope there (default None).
        on_rejected: a function of the request and the Refusal that returns the response; it may be asynchronous
            (default None: problem details). The fields of the refusal are added to it.
        limit_preflight: whether CORS preflights that aiohttp-cors answers are limited as well (default False). One that
            a handler of yours answers is always limited.
        messages, headers, proxies, ipv6_prefix, unidentified, checks, enabled: as there, with the same defaults.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from aiohttp import web
        >>> from batchlimit.rules import Rule
        >>> app = web.Application()
        >>> Limits("memory://", [Rule("all", "100/s", key="all:{ip}")]).setup(app)
    """

    def __init__(
        self,
        limiter: AsyncLimiterSource,
        rules: RulesSource,
        *,
        identify: AsyncIdentify[web.Request] | None = None,
        on_rejected: OnRejected | None = None,
        messages: Rules | Iterable[Rule] = (),
        **options: Unpack[WebOptions],
    ) -> None:
        self._on_rejected = on_rejected
        self._front = AsyncFront(limiter, rules, identify=identify, messages=messages, **options)

    def __repr__(self) -> str:
        return f"<Limits {self._front.enforcer.rules}>"

    def setup(self, app: web.Application) -> None:
        """Hold the rules against the requests of an application and of its subapplications.

        Args:
            app: the root application. The rules are asked before all its middlewares, wherever this is called.

        Raises:
            RuntimeError: the application is being served.
        """
        app.middlewares.insert(0, self._hold_rules)
        app.on_response_prepare.append(_prepare)
        app.cleanup_ctx.append(self._life)

    def statistics(self) -> EnforcementStatistics:
        """Return the EnforcementStatistics of this process, by rule; the rules for messages count messages."""
        return self._front.statistics()

    @web.middleware
    async def _hold_rules(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        fields = [
            (name.encode(), value.encode("utf-8", "surrogateescape"))
            for name in wanted
            for value in request.headers.getall(name, ())
        ]
        by_cors = request.method == "OPTIONS" and request.match_info.handler.__module__.startswith("aiohttp_cors.")
        path = request.rel_url.path_safe  # as the router reads it: an encoded slash ends no segment
        path = path if "%2F" in path else request.path
        peer, front = request.remote or None, self._front
        outcome = await front.admit(request.method, path, peer, fields, request, is_answered=by_cors)
        if outcome.refusal is not None:
            return await self._reject(request, outcome.refusal)
        request[HOLD] = vars(request)[HOLD_NAME] = hold = AiohttpHold(front, outcome, self._reject)
        try:
            response = await handler(request)
        except web.HTTPException as answer:  # sent by aiohttp, unless another middleware answers something else
            hold.answered(request, answer) if hold.response is None else hold.settle(answer)
            raise
        except BaseException as error:
            hold.settle(error)
            raise
        finally:
            outcome.request = None  # it leads back to this one: the garbage collector would have to find that
        if isinstance(response, web.StreamResponse):
            await hold.finish(request, response)
        return response

    async def _life(self, app: web.Application) -> AsyncIterator[None]:
        for route in app.router.routes():  # those of subapplications too
            methods = vars(route.handler).values() if isinstance(route.handler, type) else ()
            for limit in (limit for handler in (route.handler, *methods) for limit in marks_of(handler)):
                self._front.enforcer.check(limit)
        self._front.open()
        yield
        await self._front.close()

    async def _reject(self, request: web.Request, refusal: Refusal) -> web.StreamResponse:
        give_back_permit({PERMIT: request.get(CALL_PERMIT)})
        if self._on_rejected is None:
            return answer(refusal)
        try:
            told: Any = self._on_rejected(request, refusal)
            response: web.StreamResponse = await told if inspect.isawaitable(told) else told
            put(refusal.fields, response)
        except Exception as error:  # noqa: BLE001  told in the log
            self._front.enforcer.counters.unanswered(refusal.rules, error)
            return answer(refusal)
        return response


async def _prepare(request: web.Request, response: web.StreamResponse) -> None:
    """Add the fields to a response that is about to start, and watch it."""
    hold: AiohttpHold | None = request.get(HOLD)
    if hold is not None:
        put(hold.outcome.headers, response)
        hold.response = response
        if hold.front.of_messages is not None and isinstance(response, web.WebSocketResponse):
            hold.limit_messages(response)
        elif hold.outcome.charges:
            hold.count(response)


def limited(key: str, *, cost: RuleCost | None = None, charge: ChargeSetting = None) -> Callable[[Handler], Handler]:
    """Return a decorator for a handler: requests are charged to the rule with this key, too.

    The handler is a coroutine function, or a method of a `web.View` or of another class. `Limits` stands before the
    application and has the rule. A key that no rule has is an error when the application starts.

    Args:
        key, cost, charge: what is asked for, as of RouteLimit of `batchlimit.integrations.enforcement`.

    Returns:
        The decorator.

    Raises:
        RulesError: an argument cannot work.
        TypeError: what is decorated is a class; decorate its methods.

    Example:
        >>> from aiohttp import web
        >>> @limited("search:{ip}", cost=2)
        ... async def search(request: web.Request) -> web.Response:
        ...     return web.Response(text="found")
    """
    limit = limit_for_route(key, cost, charge)  # it makes a function of statuses

    def decorate(handler: Handler) -> Handler:
        if isinstance(handler, type):
            raise TypeError(f"{handler.__name__} is a class: write @limited before its methods, such as `get`")

        @wraps(handler)
        async def asks_first(*args: Any, **kwargs: Any) -> Any:
            request: Any = args[-1] if isinstance(args[-1], web.BaseRequest) else args[-1].request
            hold: AiohttpHold | None = request.get(HOLD)
            if hold is None:
                give_back_permit({PERMIT: request.get(CALL_PERMIT)})
                return answer(unprotected(key, "call setup(app) of Limits whose rules have this key and match=None"))
            if hold.outcome.request is None:
                raise LookupError("the response of this request has ended: nothing more can be charged to it")
            refusal = await hold.front.enforcer.ask(limit, hold.outcome, parameters=request.match_info)
            return await (handler(*args, **kwargs) if refusal is None else hold.reject(request, refusal))

        mark(asks_first, limit)
        return asks_first  # type: ignore[return-value]

    return decorate


def answer(refusal: Refusal) -> web.Response:
    """Return the answer to a request that is refused."""
    response = web.Response(status=refusal.status, body=refusal.body)
    put(refusal.headers, response)
    return response


def put(fields: list[Header], response: web.StreamResponse) -> None:
    """Put header fields into a response."""
    for name, value in texts(fields):
        response.headers[name] = value


class AiohttpHold:
    """One request that was admitted."""

    __slots__ = ("_sent", "front", "outcome", "reject", "response")

    def __init__(self, front: AsyncFront, outcome: Outcome, reject: Callable[..., Awaitable[Any]]) -> None:
        self.front, self.outcome, self.reject = front, outcome, reject
        self.response: web.StreamResponse | None = None  # the one that was prepared
        self._sent = 0

    async def finish(self, request: web.Request, response: web.StreamResponse) -> None:
        """Send the response, and settle: with it, or with what went wrong."""
        if not self.outcome.charges:
            return
        try:
            await send(request, response)
        except BaseException as error:
            self.settle(error)
            if not isinstance(error, ConnectionError):
                raise
        else:
            self.answered(request, response)

    def answered(self, request: web.Request, response: web.StreamResponse) -> None:
        """Settle a request by a response that is complete."""
        self._sent = self._sent or (0 if request.method == "HEAD" else response.content_length or 0)
        self.settle(None, response)

    def settle(self, error: BaseException | None, answer: web.StreamResponse | None = None) -> None:
        """Settle a request by its response, or by what its handler, or sending the response, has raised."""
        response = self.response if answer is None else answer
        left = isinstance(error, asyncio.CancelledError | ConnectionError)  # the client; no response may have started
        status, told = (499 if left else 500, ()) if response is None else (response.status, response.headers.items())
        headers = [(name.lower().encode("latin-1"), value.encode("utf-8")) for name, value in told]
        self.front.settle(self.outcome, Response(status, headers, error, error is None, self._sent))

    def count(self, response: web.StreamResponse) -> None:
        """Count what a body that is an iterator, and a handler that writes by itself, hand to the response."""
        writer: Any = response._payload_writer  # noqa: SLF001  both pass by it
        kind, alive = type(writer), proxy(writer)  # by a method of its own it would be left to the garbage collector

        def counting(write: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
            async def counted(data: bytes = b"", **options: Any) -> None:
                await write(alive, data, **options)
                self._sent += memoryview(data).nbytes

            return counted

        writer.write, writer.write_eof = counting(kind.write), counting(kind.write_eof)

    def limit_messages(self, websocket: web.WebSocketResponse) -> None:
        """Charge each message that the handler receives, however it asks for it; the first refused one closes."""
        receive: Any = websocket.receive
        waiting: WSMessage | None = None  # one whose turn was cancelled while it was charged

        async def limited(timeout: float | None = None) -> WSMessage:
            nonlocal waiting
            message: WSMessage = waiting or await receive(timeout)
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return message
            waiting = message
            refused = await self.front.refused_message(self.outcome.request)
            waiting = None
            if refused is None:
                return message
            reason = b"too many messages" if refused.status == 429 else b"messages cannot be admitted now"
            await websocket.close(code=WSCloseCode.POLICY_VIOLATION, message=reason)
            return WSMessage(WSMsgType.CLOSED, None, None)

        websocket.receive = limited  # type: ignore[method-assign]


async def send(request: web.Request, response: web.StreamResponse) -> None:
    """Send all of a response. Then aiohttp sends it again: that does nothing, or raises if the client left."""
    prepare = response.prepare
    if isinstance(response, web.FileResponse):  # its `prepare` sends the file, as often as it is called
        response.prepare = _sent  # type: ignore[method-assign]
    await prepare(request)
    await response.write_eof()


async def _sent(request: web.BaseRequest) -> None:
    """Prepare a file that was sent: nothing is left to do."""


HOLD = web.RequestKey("batchlimit", AiohttpHold)
"""Where a request has its AiohttpHold."""
CALL_PERMIT = web.RequestKey("batchlimit.permit", object)
"""Where a request has its permit."""
