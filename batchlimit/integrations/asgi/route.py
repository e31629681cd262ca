"""What a route asks for one request, and RouteLimitMiddleware, which asks before any ASGI application of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import CoroutineType
from typing import Any

from batchlimit.base.steps import drive
from batchlimit.integrations.address import AsyncIdentify, Identity, identity_of
from batchlimit.integrations.asgi.exchange import ASGIApp, Exchange, Receive, Scope, Send, answer
from batchlimit.integrations.carried import give_back_permit
from batchlimit.integrations.enforcement import (
    SHOWN,
    AsyncEnforcer,
    Outcome,
    Refusal,
    Response,
    RouteLimit,
    unprotected,
)
from batchlimit.integrations.enforcement.plan import limit_for_route
from batchlimit.integrations.headers import Header
from batchlimit.integrations.source import LimiterHome
from batchlimit.rules.request import NOTHING
from batchlimit.rules.rule import ChargeSetting, RuleCost

LIMITS_KEY = "batchlimit"
"""Where RateLimitMiddleware puts the RouteLimits of a request into its scope."""
LATE_KEY = "batchlimit.late"
"""Where the scope of a preflight has the RouteLimits of each RateLimitMiddleware that has not charged it yet."""


class RouteLimits(Exchange):
    """One request, in its scope, for its routes to ask; it is watched once a charge depends on its response."""

    __slots__ = ("_home", "_settling", "enforcer", "give_answer", "outcome")

    def __init__(
        self,
        receive: Receive,
        send: Send,
        enforcer: AsyncEnforcer,
        outcome: Outcome,
        give_answer: Callable[..., Awaitable[None]],
        home: LimiterHome[Any],
    ) -> None:
        super().__init__(receive, send, outcome.headers)
        self.enforcer, self.outcome, self.give_answer, self._home = enforcer, outcome, give_answer, home
        self._settling: asyncio.Task[None] | None = None
        self.is_watched = bool(outcome.charges)

    def _tell(self, response: Response) -> None:
        """Settle as soon as the response has ended."""
        if (rest := self.enforcer.settle_ahead(self.outcome, response)) is not None:
            self._settling = self._home.settle(rest)

    def _leave(self, scope: Scope) -> Awaitable[object] | None:
        """Return what settles, to be waited for; take this out of the scope, whose cycle would else be garbage."""
        if scope.get(SHOWN) is self:
            scope[SHOWN] = self.outcome.shown
        scope.pop(LIMITS_KEY, None)
        scope.pop(LATE_KEY, None)
        return None if self._settling is None else asyncio.wait([self._settling])


async def ask(
    scope: Scope, limit: RouteLimit, identity: Identity | None = None, parameters: Mapping[str, object] | None = None
) -> Refusal | None:
    """Charge a request to the rule that its route asks for; return what refuses it."""
    limits: RouteLimits | None = scope.get(LIMITS_KEY)
    if limits is None:
        return unprotected(
            limit.key, "add a RateLimitMiddleware, as by add_rate_limits, whose rules have this key and match=None"
        )
    outcome, known = limits.outcome, NOTHING if identity is None else identity
    asked = limits.enforcer.asked(limit, outcome, known, parameters or scope.get("path_params") or NOTHING)
    if asked is not None and not isinstance(asked, Refusal):
        asked = outcome.add(await drive(asked), limits.enforcer.fields)
    scope[SHOWN] = limits  # another middleware behind that one may have put its own there
    if outcome.charges:
        limits.is_watched = True
    if asked is not None:
        give_back_permit(scope)
    return asked


async def charge_preflight(scope: Scope) -> Refusal | None:
    """Charge a preflight that nothing before the routes has answered to rules that match; return what refuses it."""
    uncharged: Sequence[RouteLimits] = scope.pop(LATE_KEY, ())
    for each in uncharged:
        enforcer, outcome = each.enforcer, each.outcome
        assert outcome.request is not None
        admitted = await enforcer.admit(outcome.request)
        refusal = outcome.add(admitted, enforcer.fields)
        outcome.is_unmatched, outcome.is_exempt = admitted.is_unmatched, admitted.is_exempt
        each.is_watched = bool(outcome.charges)
        if refusal is not None:
            give_back_permit(scope)
            return refusal
    return None


def fields_to_write(refusal: Refusal, scope: Scope) -> list[Header]:
    """Return the fields of an answer that a framework gives to a refusal; none, where RateLimitMiddleware adds them."""
    return [] if LIMITS_KEY in scope else refusal.fields


async def reject(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that its route refused."""
    limits: RouteLimits | None = scope.get(LIMITS_KEY)
    if limits is not None:
        await limits.give_answer(refusal, scope, receive, send, writes_fields=False)
    else:
        await answer(refusal, scope, receive, send, refusal.fields)


async def identity_by(identify: Callable[..., Any] | None, native: object) -> Identity | None:
    """Return what a function tells of a request; if it raises, the rule has no key."""
    found = None if identify is None else identity_of({}, identify, native, may_await=True)
    return await found if isinstance(found, CoroutineType) else found


class RouteLimitMiddleware:
    """Asks for one rule before an application is entered: a route, a mount, a router.

    RateLimitMiddleware stands before it, and has the rule.

    Args:
        app: the application.
        key, cost, charge: what is asked for, as of RouteLimit of `batchlimit.integrations.enforcement`.
        identify: a function of the scope, which may be asynchronous. It returns values for the key, before those of
            the request (default None: those of the request and the path parameters of the route).

    Raises:
        RulesError: an argument cannot work.

    Example:
        >>> import httpx
        >>> from batchlimit.integrations.asgi import RateLimitMiddleware
        >>> from batchlimit.rules import Rule
        >>> async def search(scope, receive, send):
        ...     await send({"type": "http.response.start", "status": 200, "headers": []})
        ...     await send({"type": "http.response.body", "body": b"found"})
        >>> route = RouteLimitMiddleware(search, "search:{ip}", cost=2)
        >>> rules = [Rule("search", "3/hour", key="search:{ip}", match=None)]
        >>> limited = RateLimitMiddleware(route, "memory://", rules)
        >>> async with httpx.AsyncClient(transport=httpx.ASGITransport(limited), base_url="http://shop") as client:
        ...     [(await client.get("/")).status_code for _ in range(2)]
        [200, 429]
    """

    def __init__(
        self,
        app: ASGIApp,
        key: str,
        *,
        cost: RuleCost | None = None,
        charge: ChargeSetting = None,
        identify: AsyncIdentify[Scope] | None = None,
    ) -> None:
        self.limit = limit_for_route(key, cost, charge, "Middleware(RouteLimitMiddleware, ...)")
        self.app, self._identify = app, identify

    def __repr__(self) -> str:
        return f"<RouteLimitMiddleware {self.limit.key}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as any ASGI application."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refusal = await ask(scope, self.limit, await identity_by(self._identify, scope))
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await reject(refusal, scope, receive, send)
