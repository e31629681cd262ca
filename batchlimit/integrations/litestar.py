"""Rate limits for Litestar: rules before the application, and guards by which handlers ask for more."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from batchlimit.base.lazy import needed
from batchlimit.integrations.address import AsyncIdentify
from batchlimit.integrations.asgi import RateLimitMiddleware, RouteLimitMiddleware
from batchlimit.integrations.asgi.exchange import POLICY_VIOLATION
from batchlimit.integrations.asgi.middleware import charging_preflights
from batchlimit.integrations.asgi.route import ask, fields_to_write, identity_by, reject
from batchlimit.integrations.enforcement import Refusal, RouteLimit, decisions
from batchlimit.integrations.enforcement.plan import limit_for_route, no_decorator
from batchlimit.integrations.headers import Header, texts
from batchlimit.integrations.source import AsyncLimiterSource, RulesSource
from batchlimit.rules.rule import ChargeSetting, RuleCost

with needed(__name__, "litestar", "Litestar"):
    from litestar import Litestar, Response
    from litestar.config.cors import CORSConfig
    from litestar.connection import ASGIConnection
    from litestar.exceptions import HTTPException, WebSocketException
    from litestar.handlers import BaseRouteHandler
    from litestar.middleware import DefineMiddleware

__all__ = ["RateLimitMiddleware", "RefusedRequest", "add_rate_limits", "decisions", "limited", "route_limit"]

Guard = Callable[[Any, BaseRouteHandler], Awaitable[None]]
_WRITTEN = "guards=[limited(...)]"
_no_guard = partial(no_decorator, "returns a guard", f"give the handler {_WRITTEN}")


class RefusedRequest(HTTPException):
    """A request is over a limit that its handler asked for: as RefusedRequest of `batchlimit.integrations.starlette`.

    Attributes:
        refusal: why; its `retry_after`, `rules`, `body` and `error` are for handlers of one's own.
    """

    def __init__(self, refusal: Refusal, fields: Iterable[Header]) -> None:
        super().__init__(status_code=refusal.status, headers=dict(texts(fields)) or None)
        self.refusal = refusal


def add_rate_limits(
    app: Litestar, limiter: AsyncLimiterSource, rules: RulesSource, **options: Any
) -> RateLimitMiddleware:
    """Put `RateLimitMiddleware` before an application, and answer what its handlers refuse.

    When the application starts, each `limited` of its handlers is looked up in the rules. One that no rule has ends the
    start with a RulesError.

    Args:
        app: the application.
        limiter, rules, options: as of `RateLimitMiddleware`: identify, headers, proxies, on_rejected ...

    Returns:
        The middleware, for its `statistics()`.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from litestar import Litestar, get
        >>> from litestar.testing import TestClient
        >>> from batchlimit.rules import Rule
        >>> @get("/search", guards=[limited("search:all", cost=2)])
        ... async def search() -> str:
        ...     return "found"
        >>> app = Litestar([search], logging_config=None)
        >>> limits = add_rate_limits(app, "memory://", [Rule("search", "3/hour", key="search:all", match=None)])
        >>> with TestClient(app) as client:
        ...     [client.get("/search").status_code for _ in range(2)]
        [200, 429]
    """
    middleware = RateLimitMiddleware(app.asgi_handler, limiter, rules, **options)

    def check() -> None:
        for route in app.routes:
            handlers = getattr(route, "route_handlers", None) or [route.route_handler]  # type: ignore[union-attr]
            for guard in (guard for handler in handlers for guard in handler.resolve_guards()):
                if getattr(guard, "func", guard) is limited:  # Litestar wraps functions that are not awaited
                    raise _no_guard("search:{user}")
                if isinstance(limit := getattr(guard, "limit", None), RouteLimit):
                    middleware.enforcer.check(limit)

    cors: Any = app.asgi_handler
    if isinstance(getattr(cors, "config", None), CORSConfig):  # the middleware that answers preflights
        middleware.charges_late, cors.app = True, charging_preflights(cors.app)
    app.asgi_handler = middleware  # type: ignore[assignment]  # inside what gives a scope its application
    app.on_startup.insert(0, check)
    app.on_shutdown.append(middleware.close)
    app.exception_handlers.setdefault(RefusedRequest, lambda _, error: _Answer(error.refusal))
    return middleware


def limited(
    key: str, *, cost: RuleCost | None = None, charge: ChargeSetting = None, identify: AsyncIdentify[Any] | None = None
) -> Guard:
    """Return a guard that charges a request to one more rule: of a handler, a controller, a router or the application.

    A websocket that it refuses is closed with code 1008; `route_limit` answers 429 instead.

    Args:
        key, cost, charge: what is asked for, as of RouteLimit of `batchlimit.integrations.enforcement`.
        identify: a function of the connection, which may be asynchronous. It returns values for the key (default None:
            the key is made of what the middleware's `identify` tells, and of path parameters).

    Returns:
        The guard.

    Raises:
        RulesError: an argument cannot work.

    Example:
        >>> from litestar import get
        >>> @get("/report", guards=[limited("search:{user}", cost=5, identify=lambda c: {"user": c.headers["x-user"]})])
        ... async def report() -> str:
        ...     return "report"
    """
    limit = limit_for_route(key, cost, charge, _WRITTEN)

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        scope: Any = connection.scope
        refusal = await ask(scope, limit, await identity_by(identify, connection))
        if refusal is None:
            return
        if scope["type"] == "websocket":
            raise WebSocketException(detail="over the limit", code=POLICY_VIOLATION)
        raise RefusedRequest(refusal, fields_to_write(refusal, scope))

    made = _Guard(guard)
    made.limit = limit
    return made


class _Guard(partial[Awaitable[None]]):
    """What `guards` takes, in the place of its coroutine function; as the decorator of a handler it says so."""

    limit: RouteLimit

    def __call__(self, *asked: Any, **values: Any) -> Awaitable[None]:
        if len(asked) + len(values) < 2:
            raise _no_guard(self.limit.key)
        return super().__call__(*asked, **values)


def route_limit(key: str, **options: Any) -> DefineMiddleware:
    """Return a middleware for a handler, a controller or a router, which charges requests to one more rule.

    Args:
        key: the key of a rule with `match=None`, with its fields: "search:{user}".
        options: those of `RouteLimitMiddleware`: cost, charge, identify (a function of the scope).

    Returns:
        The middleware.

    Example:
        >>> from litestar import websocket_listener
        >>> @websocket_listener("/ws", middleware=[route_limit("handshake:{ip}")])
        ... async def echo(data: str) -> str:
        ...     return data
    """
    return DefineMiddleware(RouteLimitMiddleware, key=key, **options)  # type: ignore[arg-type]


class _Answer(Response[None]):
    """What the middleware answers to a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(None, status_code=refusal.status)
        self._refusal = refusal

    def to_asgi_response(self, *arguments: Any, **options: Any) -> Any:
        """Return an ASGI application that answers."""
        return partial(reject, self._refusal)
