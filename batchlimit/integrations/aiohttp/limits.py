"""Limits: rules held against the requests and websockets of an aiohttp application; and what its handlers ask for."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar, Unpack

from aiohttp import web

from batchlimit.integrations.aiohttp.hold import CALL_PERMIT, HOLD, AiohttpHold, answer, put
from batchlimit.integrations.carried import PERMIT, give_back_permit
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import HOLD_NAME, Refusal, unprotected
from batchlimit.integrations.enforcement.route import limit_for_route, mark, marks_of
from batchlimit.integrations.front import AsyncFront, WebOptions, wanted
from batchlimit.integrations.identity import Identity
from batchlimit.integrations.source import AsyncLimiterSource
from batchlimit.rules import Rule, RuleFile, Rules
from batchlimit.rules.rule import Charge, RuleCost

OnRejected = Callable[[web.Request, Refusal], web.StreamResponse | Awaitable[web.StreamResponse]]
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Limits:
    """Holds rules against every request and every handshake of a websocket, before a handler is called.

    All rules that match are charged at once, or none of them. A request that a rule refuses is answered 429, with
    `RateLimit` fields, `Retry-After` and problem details; 503 while the store is away; 403 if a key cannot be made.
    Nothing that goes wrong here becomes a 500. Responses of admitted requests carry the fields too.

    Args:
        limiter: the URL of a store, or a function that makes an AsyncRateLimiter. It is made when the application
            starts and closed when that is cleaned up. Or an AsyncRateLimiter with the quotas `rules.quotas`, which its
            owner closes.
        rules: Rules, several Rule, or a RuleFile.
        identify: a function of the `web.Request`, which may be asynchronous. It returns values for the keys, such as
            {"user": "ann"}, or None (default None: keys have `ip` alone). If it raises, the rules that need more than
            `ip` have no key.
        on_rejected: a function of the request and the Refusal that returns the response; it may be asynchronous
            (default None: problem details). The fields of the refusal are added to it.
        messages: Rules for each message that a websocket receives, matched by the path of its handshake (default none).
            One that is refused closes the websocket with code 1008.
        limit_preflight: whether CORS preflights that aiohttp-cors answers are limited as well (default False). One that
            a handler of yours answers is always limited.
        headers, proxies, ipv6_prefix, unidentified, checks, enabled: as of RateLimitMiddleware of
            `batchlimit.integrations.asgi`, with the same defaults.

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
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[[web.Request], Identity | Awaitable[Identity | None] | None] | None = None,
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
        peer, fields = (
            request.remote or None,
            [
                (name.encode(), value.encode("utf-8", "surrogateescape"))
                for name in wanted
                for value in request.headers.getall(name, ())
            ],
        )
        by_cors = request.method == "OPTIONS" and request.match_info.handler.__module__.startswith("aiohttp_cors.")
        path = request.rel_url.path_safe  # as the router reads it: an encoded slash ends no segment
        path = path if "%2F" in path else request.path
        outcome = await self._front.admit(request.method, path, peer, fields, request, is_answered=by_cors)
        if outcome.refusal is not None:
            return await self._reject(request, outcome.refusal)
        request[HOLD] = hold = AiohttpHold(self._front, outcome, self._reject)
        vars(request)[HOLD_NAME] = hold
        try:
            response = await handler(request)
        except BaseException as error:
            hold.settle(error)
            raise
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
    hold: AiohttpHold | None = request.get(HOLD)
    if hold is not None:
        hold.prepare(response)


_MISSING = "call setup(app) of Limits whose rules have this key and match=None"
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


def limited(
    key: str, *, cost: RuleCost | None = None, charge: Charge | Sequence[int | str] | None = None
) -> Callable[[Handler], Handler]:
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
            refusal = unprotected(limit.key, _MISSING) if hold is None else await hold.ask(limit, request)
            if refusal is None:
                return await handler(*args, **kwargs)
            give_back_permit({PERMIT: request.get(CALL_PERMIT)})
            return answer(refusal) if hold is None else await hold.reject(request, refusal)

        mark(asks_first, limit)
        return asks_first  # type: ignore[return-value]

    return decorate
