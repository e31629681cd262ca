"""Rate limits for Starlette: the middleware, and a refusal that a route raises. Needs the extra `starlette`.

A route asks for one more rule by `Middleware(RouteLimitMiddleware, "search:{user}")`, or by `charge_request`.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from batchlimit.base.lazy import needed
from batchlimit.integrations.asgi import RateLimitMiddleware, RouteLimitMiddleware
from batchlimit.integrations.asgi.exchange import POLICY_VIOLATION, ASGIApp
from batchlimit.integrations.asgi.middleware import charging_preflights
from batchlimit.integrations.asgi.route import ask, fields_to_write, reject
from batchlimit.integrations.enforcement import Refusal, RouteLimit, decisions
from batchlimit.integrations.headers import Header, texts
from batchlimit.integrations.source import AsyncLimiterSource, RulesSource

with needed(__name__, "starlette", "Starlette"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException, WebSocketException
    from starlette.middleware import Middleware
    from starlette.requests import HTTPConnection, Request
    from starlette.websockets import WebSocket, WebSocketState

__all__ = [
    "RateLimitMiddleware",
    "RefusedRequest",
    "RefusedWebSocket",
    "RouteLimit",
    "RouteLimitMiddleware",
    "add_exception_handlers",
    "add_rate_limits",
    "charge_request",
    "decisions",
]


class RefusedRequest(HTTPException):
    """A request is over a limit that its route asked for. Every application answers it, for it is an HTTPException.

    Args:
        refusal: why.
        fields: those of the answer; none, if the middleware adds them.

    Attributes:
        refusal: as above; its `retry_after`, `rules`, `body` and `error` are for handlers of one's own.
    """

    def __init__(self, refusal: Refusal, fields: Iterable[Header]) -> None:
        super().__init__(refusal.status, headers=dict(texts(fields)) or None)
        self.refusal = refusal


class RefusedWebSocket(WebSocketException):
    """A websocket is over a limit that its route asked for: it is closed with code 1008.

    Args:
        refusal: why; kept as `refusal`.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(POLICY_VIOLATION, "over the limit")
        self.refusal = refusal


def add_rate_limits(
    app: Starlette, limiter: AsyncLimiterSource, rules: RulesSource, **options: Any
) -> RateLimitMiddleware:
    """Put `RateLimitMiddleware` before an application, and answer what its routes refuse.

    Args:
        app: the application. Mounted ones are behind the middleware too.
        limiter, rules, options: as of `RateLimitMiddleware`: identify, headers, proxies, on_rejected ...

    Returns:
        The middleware, for its `statistics()`.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from starlette.applications import Starlette
        >>> from starlette.testclient import TestClient
        >>> from batchlimit.rules import Rule
        >>> app = Starlette()
        >>> limits = add_rate_limits(app, "memory://", [Rule("all", "1/hour", key="all:{ip}")])
        >>> client = TestClient(app, client=("192.0.2.1", 5000))
        >>> [client.get("/").status_code for _ in range(2)]
        [404, 429]
        >>> limits.statistics().rules["all"].refused
        1
    """
    middleware = RateLimitMiddleware(app, limiter, rules, **options)  # made now, so that a typo is an error here
    middleware.charges_late = True

    def put_before(app: ASGIApp) -> RateLimitMiddleware:
        middleware.app = app
        return middleware

    app.add_middleware(put_before)
    app.user_middleware.append(Middleware(charging_preflights))  # what is added from now on stands outside
    add_exception_handlers(app)
    return middleware


def add_exception_handlers(app: Starlette) -> None:
    """Answer refusals of routes as the middleware does: with problem details, or by its `on_rejected`.

    `add_rate_limits` calls it. A mounted application needs a call of its own: it answers its exceptions itself.

    Args:
        app: the application.
    """
    app.add_exception_handler(RefusedRequest, _answer)  # type: ignore[arg-type]  # any ASGI application answers
    app.add_exception_handler(RefusedWebSocket, _close)


async def charge_request(
    connection: HTTPConnection, limit: RouteLimit, identity: Mapping[str, object] | None = None
) -> None:
    """Charge a request, or the handshake of a websocket, to the rule with this key.

    Args:
        connection: the Request or WebSocket.
        limit: what the route asks for.
        identity: values for the key (default None: those of the request, and the path parameters of the route).

    Raises:
        RefusedRequest, RefusedWebSocket: the rule refuses; or no RateLimitMiddleware with such a rule is there.
    """
    if (refusal := await ask(connection.scope, limit, identity)) is not None:
        raise refused(refusal, connection)


def refused(refusal: Refusal, connection: HTTPConnection) -> RefusedRequest | RefusedWebSocket:
    """Return what a route raises to refuse a request, or the handshake of a websocket."""
    if connection.scope["type"] == "websocket":
        return RefusedWebSocket(refusal)
    return RefusedRequest(refusal, fields_to_write(refusal, connection.scope))


async def _answer(request: Request, error: Exception) -> ASGIApp:
    assert isinstance(error, RefusedRequest)
    return partial(reject, error.refusal)


async def _close(websocket: WebSocket, error: Exception) -> None:
    assert isinstance(error, RefusedWebSocket)
    if websocket.client_state is WebSocketState.CONNECTING:
        await reject(error.refusal, websocket.scope, websocket.receive, websocket.send)
    else:
        await websocket.close(error.code, error.reason)
