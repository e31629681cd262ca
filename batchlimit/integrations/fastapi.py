"""Rate limits for FastAPI: rules before the application, and a dependency by which routes ask for more."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from batchlimit.base.lazy import needed
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.asgi.route import ask
from batchlimit.integrations.enforcement import RouteLimit, decisions
from batchlimit.integrations.enforcement.plan import limit_for_route, no_decorator
from batchlimit.integrations.headers import Form, described
from batchlimit.integrations.source import AsyncLimiterSource, RulesSource
from batchlimit.rules.rule import ChargeSetting, RuleCost

with needed(__name__, "fastapi", "FastAPI"):
    from fastapi import Depends, FastAPI
    from fastapi.requests import HTTPConnection

from batchlimit.integrations import starlette
from batchlimit.integrations.starlette import RefusedRequest, RefusedWebSocket, add_exception_handlers

__all__ = [
    "RateLimitMiddleware",
    "RefusedRequest",
    "RefusedWebSocket",
    "add_exception_handlers",
    "add_rate_limits",
    "decisions",
    "limited",
    "responses",
]
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "violated-policies": {"type": "array", "items": {"type": "string"}},
    },
}
"""The JSON schema of problem details."""
_WRITTEN = "dependencies=[Depends(limited(...))]"
_no_dependency = partial(no_decorator, "is a dependency", f"give the route {_WRITTEN}")


def add_rate_limits(
    app: FastAPI, limiter: AsyncLimiterSource, rules: RulesSource, **options: Any
) -> RateLimitMiddleware:
    """Put `RateLimitMiddleware` before an application, and answer what its routes refuse.

    When the application starts, each `limited` of its routes is looked up in the rules. One that no rule has ends the
    start with a RulesError.

    Args:
        app: the application. Included routers and mounted applications are behind the middleware too.
        limiter, rules, options: as of `RateLimitMiddleware`: identify, headers, proxies, on_rejected ...

    Returns:
        The middleware, for its `statistics()`.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from fastapi import Depends, FastAPI
        >>> from fastapi.testclient import TestClient
        >>> from batchlimit.rules import Rule
        >>> app = FastAPI(responses=responses())
        >>> rules = [Rule("all", "100/s", key="all"), Rule("search", "3/hour", key="search:{ip}", match=None)]
        >>> limits = add_rate_limits(app, "memory://", rules)
        >>> @app.get("/search", dependencies=[Depends(limited("search:{ip}", cost=2))])
        ... def search() -> str:
        ...     return "found"
        >>> with TestClient(app, client=("192.0.2.1", 5000)) as client:
        ...     [client.get("/search").status_code for _ in range(2)]
        [200, 429]
    """
    middleware = starlette.add_rate_limits(app, limiter, rules, **options)
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def checked(app: FastAPI) -> AsyncIterator[Any]:
        for limit in _limits(app.router):
            middleware.enforcer.check(limit)
        async with lifespan(app) as state:
            yield state

    app.router.lifespan_context = checked
    return middleware


def limited(
    key: str, *, cost: RuleCost | None = None, charge: ChargeSetting = None, identify: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Return a dependency that charges a request, or the handshake of a websocket, to one more rule.

    Use it with `Depends`, for a route, a router or the application. It is asynchronous, so a `def` route may have it.

    Args:
        key, cost, charge: what is asked for, as of RouteLimit of `batchlimit.integrations.enforcement`.
        identify: a dependency of yours that returns values for the key, such as {"user": "ann"}, or None. By default
            (None) the key has the values of the middleware's `identify`, and path parameters. Your application answers
            what it raises, as from every dependency.

    Returns:
        The dependency. It raises RefusedRequest or RefusedWebSocket; as a decorator, TypeError.

    Raises:
        RulesError: an argument cannot work.

    Example:
        >>> from fastapi import Depends, Header
        >>> def who(x_user: str = Header()) -> dict[str, str]:
        ...     return {"user": x_user}
        >>> by_user = Depends(limited("search:{user}", cost=2, identify=who))
    """
    limit = limit_for_route(key, cost, charge, _WRITTEN)
    dependency: Callable[..., Any]
    if identify is None:

        async def dependency(connection: HTTPConnection) -> None:
            if (refusal := await ask(connection.scope, limit)) is not None:
                raise starlette.refused(refusal, connection)
    else:

        async def dependency(connection: HTTPConnection, told: Annotated[Any, Depends(identify)]) -> None:
            if (refusal := await ask(connection.scope, limit, told)) is not None:
                raise starlette.refused(refusal, connection)

    depends = _Dependency(dependency)
    depends.limit = limit
    return depends


class _Dependency(partial[Any]):
    """What Depends takes, in the place of its coroutine function; as the decorator of a route it says so."""

    limit: RouteLimit

    def __call__(self, decorated: object = None, /, **values: Any) -> Any:
        if decorated is not None:
            raise _no_dependency(self.limit.key)
        return self.func(**values)

    @property
    def dependency(self) -> Any:
        """Raise TypeError: FastAPI reads this of what stands in the place of a Depends."""
        raise _no_dependency(self.limit.key)


def responses(headers: Form = "draft-11") -> dict[int | str, dict[str, Any]]:
    """Return the answers of the limits for OpenAPI: `FastAPI(responses=responses())`, or those of a router or a route.

    Args:
        headers: that of the middleware (default "draft-11").

    Returns:
        429 and 503 with their fields and their problem details.

    Example:
        >>> sorted(responses()[429]["headers"])
        ['RateLimit', 'RateLimit-Policy', 'Retry-After']
    """
    fields = {name: {"description": text, "schema": {"type": kind}} for name, kind, text in described(headers)}
    content = {"application/problem+json": {"schema": _PROBLEM}}
    return {
        429: {"description": "A rate limit is exceeded", "headers": fields, "content": content},
        503: {
            "description": "A rate limit cannot be decided now",
            "headers": {name: each for name, each in fields.items() if name == "Retry-After"},
            "content": content,
        },
    }


def _limits(part: Any) -> Iterator[RouteLimit]:
    """Find what a router, a route or a dependency asks for; a route that is not seen is reported when it is asked."""
    call = getattr(part, "call", None) or getattr(part, "dependency", None)
    if call is limited:
        raise _no_dependency("search:{user}")
    if isinstance(limit := getattr(call, "limit", None), RouteLimit):
        yield limit
    for each in getattr(part, "dependencies", None) or ():
        yield from _limits(each)
    for route in getattr(part, "routes", None) or ():
        below = getattr(route, "dependant", None), getattr(route, "include_context", None)
        for each in (*below, getattr(route, "original_router", route)):
            yield from _limits(each)
