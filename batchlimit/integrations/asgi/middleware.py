"""RateLimitMiddleware: rules held against the requests, websockets and messages of an ASGI application."""

from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from traceback import format_exc
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Unpack

from batchlimit.base.steps import drive
from batchlimit.integrations.address import AsyncIdentify, identity_of
from batchlimit.integrations.asgi.exchange import (
    POLICY_VIOLATION,
    RESPONSES,
    ASGIApp,
    Message,
    OnRejected,
    Receive,
    Scope,
    Send,
    give_answer,
)
from batchlimit.integrations.asgi.route import LATE_KEY, LIMITS_KEY, RouteLimits, charge_preflight, reject
from batchlimit.integrations.carried import behind
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import SHOWN, AsyncEnforcer, Outcome
from batchlimit.integrations.front import AsyncFront, WebOptions, is_preflight
from batchlimit.integrations.headers import Header
from batchlimit.integrations.source import AsyncLimiterSource, LimiterHome, RulesSource
from batchlimit.rules import Request, Rule, Rules
from batchlimit.rules.request import request_of

if TYPE_CHECKING:
    from batchlimit.integrations.permits import ConcurrencyLimit

_STOPPED = ("lifespan.shutdown.complete", "lifespan.shutdown.failed", "lifespan.startup.failed")
_STARTS = (*RESPONSES, "websocket.accept")
_NO_CLIENT = (None, 0)
_HELD = "batchlimit.held"
"""Where the scope of a request has the middleware that asks for its permit: with that the request comes back to it."""


class LimitedMessages:
    """A websocket each of whose received messages is charged; the first that is refused closes it, with code 1008."""

    __slots__ = ("_closed", "_enforcer", "_receive", "_request", "_send", "_waiting")

    def __init__(self, enforcer: AsyncEnforcer, request: Request, receive: Receive, send: Send) -> None:
        self._enforcer, self._request, self._receive, self._send = enforcer, request, receive, send
        self._closed: dict[str, Any] | None = None
        self._waiting: Message | None = None  # whose turn was cancelled while it was charged: the next call returns it

    async def receive(self) -> Message:
        """Receive; a message that is refused is not passed on, and is the last one."""
        if self._closed is not None:
            return self._closed
        message = self._waiting or await self._receive()
        if message["type"] != "websocket.receive":
            return message
        self._waiting = message
        outcome = await self._enforcer.admit(self._request)
        self._waiting = None
        if outcome.refusal is None:
            return message
        reason = "too many messages" if outcome.refusal.status == 429 else "messages cannot be admitted now"
        self._closed = {"type": "websocket.disconnect", "code": POLICY_VIOLATION, "reason": reason}
        await self._send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        return self._closed

    async def send(self, message: Message) -> None:
        """Send, unless the websocket was closed here: as to a client that closed the connection."""
        if self._closed is None:
            await self._send(message)


async def lifespan(home: LimiterHome[Any], app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass the lifespan through to the application; make the limiter at its start, close it at its end."""

    async def starting() -> Message:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                home.limiter  # noqa: B018  made now
            except Exception:  # if it were only raised, a server would take it for an application without a lifespan
                await send({"type": "lifespan.startup.failed", "message": format_exc()})
                raise
        return message

    async def stopping(message: Message) -> None:
        if message["type"] in _STOPPED:
            await home.close_quietly()
        await send(message)

    try:
        await app(scope, starting, stopping)
    finally:
        await home.close_quietly()


def with_fields(send: Send, fields: Sequence[Header]) -> Send:
    """Return a `send` that adds fields, as they are then, to the first start of a response or of a websocket."""
    is_waiting = True

    def sending(message: Message) -> Awaitable[None]:
        nonlocal is_waiting
        if is_waiting and message["type"] in _STARTS:
            is_waiting = False
            message = {**message, "headers": [*(message.get("headers") or ()), *fields]}
        return send(message)

    return sending


def charging_preflights(app: ASGIApp) -> ASGIApp:
    """Return an application that charges a preflight first: what stands before it did not answer."""

    async def charge(scope: Scope, receive: Receive, send: Send) -> None:
        if (refusal := await charge_preflight(scope)) is not None:
            await reject(refusal, scope, receive, send)
        else:
            await app(scope, receive, send)

    def charged(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return charge(scope, receive, send) if LATE_KEY in scope else app(scope, receive, send)

    return charged


class RateLimitMiddleware:
    """Holds rules against every request and every handshake of a websocket, before the application sees it.

    All rules that match are charged at once, or none of them. A request that a rule refuses is answered 429, with
    `RateLimit` fields, `Retry-After` and problem details; 503 while the store is away; 403 if a key cannot be made.
    Nothing that goes wrong here becomes a 500. Responses of admitted requests carry the fields too.

    Args:
        app: the application.
        limiter: the URL of a store, or a function that makes an AsyncRateLimiter. The middleware makes the limiter when
            the application starts, closes it when that has stopped, and makes another one at the next start. Or an
            AsyncRateLimiter with the quotas `rules.quotas`, which its owner closes.
        rules: Rules, several Rule, or a RuleFile.
        identify: a function of the scope, which may be asynchronous. It returns values for the keys, such as
            {"user": "ann"}, or None (default None: keys have `ip` alone). If it raises, the rules that need more than
            `ip` have no key.
        headers: "draft-11" (default), "legacy", "both", "off", or Fields with a `secret` of one's own.
        proxies: TrustedProxies, whose forwarding fields are believed (default None: the peer is the client).
        ipv6_prefix: bits of an IPv6 address that make a client (default 56).
        unidentified: what becomes of a request of which a rule cannot make the key: "refuse" (default: 403, or 503
            where a function raised) or "admit" (without that rule). It is counted and told in either case.
        on_rejected: a function of the scope and the Refusal that returns the ASGI application which answers, such as a
            Starlette response; it may be asynchronous (default None: problem details). It does not answer websockets.
        messages: Rules for each message that a websocket receives, matched by the path of its handshake (default none).
            One that is refused closes the websocket with code 1008. They have no `charge`.
        limit_preflight: whether CORS preflights are limited as well that the framework, or a CORS middleware which a
            framework's own integration stands before, answers (default False). All others are limited.
        checks: True, all checks (default); False; or by name {"unmatched": False}, which leaves the others on.
        enabled: False admits every request and asks nothing: no store, no function of yours (default True).
        concurrency: a ConcurrencyLimit: a request needs a permit of it first, and is answered 503 without one (default
            None: no permit). Websockets need none.

    Attributes:
        enforcer: the AsyncEnforcer; `statistics()` of the middleware is its.
        charges_late: whether a CORS preflight is charged by `route.charge_preflight` alone, behind all that may answer
            it: for integrations of frameworks (default False).

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import httpx
        >>> from batchlimit.rules import Rule
        >>> async def app(scope, receive, send):
        ...     await send({"type": "http.response.start", "status": 200, "headers": []})
        ...     await send({"type": "http.response.body", "body": b"hello"})
        >>> limited = RateLimitMiddleware(app, "memory://", [Rule("all", "1/hour", key="all:{ip}")])
        >>> async with httpx.AsyncClient(transport=httpx.ASGITransport(limited), base_url="http://shop") as client:
        ...     [(await client.get("/")).status_code for _ in range(2)]
        [200, 429]
    """

    def __init__(
        self,
        app: ASGIApp,
        limiter: AsyncLimiterSource,
        rules: RulesSource,
        *,
        identify: AsyncIdentify[Scope] | None = None,
        on_rejected: OnRejected | None = None,
        messages: Rules | Iterable[Rule] = (),
        concurrency: "ConcurrencyLimit | None" = None,
        **options: Unpack[WebOptions],
    ) -> None:
        self.app = app
        self._concurrency = behind(concurrency if options.get("enabled", True) else None, __package__, self)
        self._front = front = AsyncFront(limiter, rules, identify=identify, messages=messages, **options)
        self.enforcer = front.enforcer
        self._give_answer = partial(give_answer, on_rejected, self.enforcer.counters)
        self.charges_late = False

    def __repr__(self) -> str:
        return f"<RateLimitMiddleware {self.enforcer.rules}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as any ASGI application."""
        if self._concurrency is not None and scope.pop(_HELD, None) is not self:
            scope[_HELD] = self
            await self._concurrency(scope, receive, send)
            return
        kind, front = scope["type"], self._front
        if kind != "http" and kind != "websocket":
            serve = partial(lifespan, front.home, self.app) if kind == "lifespan" else self.app
            await serve(scope, receive, send)
            return
        host, port = scope.get("client") or _NO_CLIENT
        identity = identity_of(front.addresses.of(host, port, scope["headers"]), front.identify, scope, may_await=True)
        if identity.__class__ is CoroutineType:
            identity = await identity
        method, enforcer = scope.get("method", "GET"), front.enforcer
        request = request_of((method, scope["path"], identity, scope, scope.get("root_path", "")))
        # A preflight that something before the routes may answer: it is charged behind that.
        may_be = method == "OPTIONS" and self.charges_late and not front.limits_preflight
        is_charged_late = may_be and is_preflight(scope["headers"])
        begun = Outcome(request=request) if is_charged_late else enforcer.begin(request)
        outcome = begun if isinstance(begun, Outcome) else await drive(begun)
        if outcome.refusal is not None:
            await self._give_answer(outcome.refusal, scope, receive, send)
            return
        if kind == "websocket" and front.of_messages is not None:
            limited = LimitedMessages(front.of_messages, request, receive, send)
            receive, send = limited.receive, limited.send
        if enforcer.has_routes or outcome.charges or is_charged_late:
            limits = RouteLimits(receive, send, enforcer, outcome, self._give_answer, front.home)
            scope[SHOWN] = limits
            if enforcer.has_routes or is_charged_late:
                scope[LIMITS_KEY] = limits
            if is_charged_late:
                scope.setdefault(LATE_KEY, []).append(limits)
            await limits.run(self.app, scope)
        else:
            scope[SHOWN] = outcome.bill, outcome.left, outcome.decided, outcome.shadows  # `shown`, without its 200 ns
            await self.app(scope, receive, with_fields(send, outcome.headers) if outcome.headers else send)

    def statistics(self) -> EnforcementStatistics:
        """Return the EnforcementStatistics of this process, by rule; the rules for messages count messages."""
        return self._front.statistics()

    async def close(self) -> None:
        """Close the limiter that was made here, after what is settling: for a framework that passes on no lifespan."""
        await self._front.close()
