"""Rate limits for Quart: an extension that holds rules against every request, and a decorator for views."""

from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, TypeVar
from weakref import WeakSet

from batchlimit.base.lazy import needed

with needed(__name__, "quart", "Quart"):
    from quart import Blueprint, Quart, Response, current_app, has_request_context, request, websocket

from batchlimit.integrations.address import AsyncIdentify
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.asgi.exchange import POLICY_VIOLATION, Message
from batchlimit.integrations.asgi.route import ask, charge_preflight, fields_to_write, identity_by, reject
from batchlimit.integrations.carried import OPERATION
from batchlimit.integrations.enforcement import Refusal, RouteLimit, decisions
from batchlimit.integrations.enforcement.plan import limit_for_route, mark, marks_of
from batchlimit.integrations.extension import BARE, NAME, Extension, Rejected, refusal_of_bare, rejected
from batchlimit.integrations.headers import Header, texts
from batchlimit.integrations.source import AsyncLimiterSource
from batchlimit.rules.rule import ChargeSetting, RuleCost

__all__ = ["Limits", "Rejected", "decisions", "limit_blueprint", "limited", "name_operations"]

View = TypeVar("View", bound=Callable[..., Any])
_decorated: WeakSet[Any] = WeakSet()
"""Views as they were before `limited` decorated them."""


class Limits(Extension[Quart, AsyncLimiterSource]):
    """Holds rules against every request and every handshake of a websocket, before Quart routes it.

    It charges, refuses and answers as the RateLimitMiddleware that it puts before the application, which says more.
    A refusal of `limited` or `limit_blueprint` raises Rejected, an HTTP error: `@app.errorhandler(429)` answers it. A
    refusal of a rule that matches never reaches Quart. `on_rejected` answers both.

    When the application starts, each limit of its views and blueprints is looked up in the rules. One that no rule has
    ends the start with a RulesError.

    Args:
        limiter: as of `RateLimitMiddleware`. None: the application's setting `BATCHLIMIT_URL` is the URL.
        rules: as of `RateLimitMiddleware`.
        app: the application; None: `init_app` tells later (default None).
        options: those of `RateLimitMiddleware`: identify (a function of the ASGI scope), headers, proxies, on_rejected,
            messages ...

    Raises:
        ValueError, TypeError: an argument cannot work; those that `app` or `init_app` needs, then.

    Example:
        >>> from quart import Quart
        >>> from batchlimit.integrations.quart import limited
        >>> from batchlimit.rules import Rule
        >>> app = Quart("shop")
        >>> limits = Limits("memory://", [Rule("search", "3/hour", key="search:all", match=None)], app)
        >>> @app.get("/search")
        ... @limited("search:all", cost=2)
        ... async def search():
        ...     return "found"
        >>> async with app.test_app() as running:
        ...     client = running.test_client()
        ...     [(await client.get("/search")).status_code for _ in range(2)]
        [200, 429]
    """

    _current = staticmethod(current_app._get_current_object)  # type: ignore[attr-defined]

    def _hold_rules(self, app: Quart, limiter: AsyncLimiterSource) -> None:
        middleware = RateLimitMiddleware(app.asgi_app, limiter, self._rules, **self._options)
        enforcer, middleware.charges_late = middleware.enforcer, True
        app.extensions[NAME], app.asgi_app = middleware, middleware  # type: ignore[assignment,method-assign]
        if self._options.get("on_rejected") is not None:
            app.register_error_handler(Rejected, _answer)

        @cache
        def bare() -> frozenset[str]:
            """Return the endpoints whose limit Quart never sees, for the decorator stands above the route."""
            inner, views = set[int](), app.view_functions
            for view in views.values():
                within: Any = view
                while (within := getattr(within, "__wrapped__", None)) is not None:
                    inner.add(id(within))
            return frozenset(name for name, view in views.items() if view in _decorated and id(view) not in inner)

        @app.before_serving
        async def check() -> None:
            before = (app.before_request_funcs, app.before_websocket_funcs)
            functions: list[Any] = [each for some in before for of_one in some.values() for each in of_one]
            for limit in (limit for each in (*app.view_functions.values(), *functions) for limit in marks_of(each)):
                enforcer.check(limit)
            if bare():
                raise RuntimeError(f"{BARE} ({', '.join(sorted(bare()))})")

        @app.before_request
        async def charge_preflight_of_view() -> None:
            scope: Any = request.scope
            rule = request.url_rule
            is_handled = rule is not None and not getattr(rule, "provide_automatic_options", False)
            if is_handled and (refusal := await charge_preflight(scope)) is not None:
                await _refuse(refusal, fields_to_write(refusal, scope))

        @app.before_websocket
        @app.before_request  # too: a server may not tell of a start
        async def refuse_bare() -> None:
            if bare() and (endpoint := _current_connection().endpoint) in bare():
                refusal = refusal_of_bare(endpoint, enforcer)
                await _refuse(refusal, refusal.fields)


def limited(
    key: str, *, cost: RuleCost | None = None, charge: ChargeSetting = None, identify: AsyncIdentify[Any] | None = None
) -> Callable[[View], View]:
    """Return a decorator for a view or a websocket: requests are charged to the rule with this key, too.

    It stands below `@app.route`, and `Limits` holds the rules. The start of the application ends with
    an error if no rule has the key, or if the decorator stands above `@app.route`.

    Args:
        key, cost, charge: what is asked for, as of RouteLimit of `batchlimit.integrations.enforcement`.
        identify: a function of the `quart.Request` or `quart.Websocket`, which may be asynchronous. It returns values
            for the key, such as {"user": g.user} (default None: those of the `identify` of `Limits`).

    Returns:
        The decorator. What it decorates raises Rejected.

    Raises:
        RulesError: an argument cannot work.

    Example:
        >>> from quart import Quart
        >>> app = Quart("shop")
        >>> @app.get("/search")
        ... @limited("search:{ip}", cost=2)
        ... async def search():
        ...     return "found"
    """
    limit = limit_for_route(key, cost, charge)  # it makes a function of statuses

    def decorate(view: View) -> View:
        @wraps(view)
        async def asks_first(*args: Any, **kwargs: Any) -> Any:
            await _charge(limit, identify)
            return await current_app.ensure_async(view)(*args, **kwargs)

        mark(asks_first, limit)
        _decorated.add(view)
        return asks_first  # type: ignore[return-value]

    return decorate


def limit_blueprint(
    blueprint: Blueprint, key: str,
    *, cost: RuleCost | None = None, charge: ChargeSetting = None, identify: AsyncIdentify[Any] | None = None,
) -> None:  # fmt: skip
    """Charge the requests and websockets of a blueprint, and of those in it, to one more rule.

    Call it before the blueprint is registered.

    Args:
        blueprint: the blueprint.
        key, cost, charge, identify: as for `limited`.

    Raises:
        RulesError: an argument cannot work.

    Example:
        >>> from quart import Blueprint
        >>> api = Blueprint("api", "shop", url_prefix="/api")
        >>> limit_blueprint(api, "api:{user}", identify=lambda request: {"user": request.headers.get("x-user")})
    """
    limit = RouteLimit(key, cost, charge)

    async def asks_first() -> None:
        await _charge(limit, identify)

    mark(asks_first, limit)
    blueprint.before_request(asks_first)
    blueprint.before_websocket(asks_first)


def _current_connection() -> Any:
    """Return the request, or the websocket, of the running view."""
    connection: Any = request if has_request_context() else websocket
    return connection._get_current_object()


async def _refuse(refusal: Refusal, fields: Iterable[Header]) -> None:
    """Raise what refuses the current request; close the current websocket, unless the server can answer it."""
    scope = _current_connection().scope
    if scope["type"] == "websocket" and "websocket.http.response" not in (scope.get("extensions") or {}):
        await websocket.close(POLICY_VIOLATION, "over the limit")
    raise rejected(refusal, fields)


async def _charge(limit: RouteLimit, identify: AsyncIdentify[Any] | None) -> None:
    connection = _current_connection()
    identity = await identity_by(identify, connection)
    if (refusal := await ask(connection.scope, limit, identity, connection.view_args)) is not None:
        await _refuse(refusal, fields_to_write(refusal, connection.scope))


async def _answer(error: Rejected) -> Any:
    """Return what `on_rejected` answers, as a response of Quart."""
    scope = _current_connection().scope
    if scope["type"] == "websocket":
        return error
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await reject(error.refusal, scope, receive, send)
    start, *parts = sent
    response = Response(b"".join(part.get("body", b"") for part in parts), start["status"])
    response.headers.clear()
    for name, value in texts(start["headers"]):
        response.headers.add(name, value)
    return response


def name_operations(app: Quart) -> None:
    """Tell a ConcurrencyLimitMiddleware before an application the route of each request.

    Args:
        app: the application.

    Example:
        >>> from quart import Quart
        >>> name_operations(Quart("shop"))
    """

    async def name() -> None:
        if (rule := request.url_rule) is not None:
            request.scope[OPERATION] = rule.rule  # type: ignore[literal-required]

    app.before_request(name)
