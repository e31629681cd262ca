"""limited and limit_blueprint: views, websockets and blueprints of Quart that ask for one more rule."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakSet

from quart import Blueprint, Quart, current_app, has_request_context, request, websocket

from batchlimit.integrations.asgi.exchange import POLICY_VIOLATION
from batchlimit.integrations.asgi.route import ask, fields_to_write, identity_by
from batchlimit.integrations.carried import OPERATION
from batchlimit.integrations.enforcement import Refusal, RouteLimit
from batchlimit.integrations.enforcement.route import limit_for_route, mark, marks_of
from batchlimit.integrations.extension import rejected
from batchlimit.integrations.headers import Header
from batchlimit.integrations.identity import Identity
from batchlimit.rules.rule import Charge, RuleCost


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


View = TypeVar("View", bound=Callable[..., Any])
Identify = Callable[[Any], Identity | Awaitable[Identity | None] | None]


def limited(
    key: str,
    *,
    cost: RuleCost | None = None,
    charge: Charge | Sequence[int | str] | None = None,
    identify: Identify | None = None,
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
    blueprint: Blueprint,
    key: str,
    *,
    cost: RuleCost | None = None,
    charge: Charge | Sequence[int | str] | None = None,
    identify: Identify | None = None,
) -> None:
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


def limits_of(app: Quart) -> Iterator[RouteLimit]:
    """Return what the views, the websockets and the blueprints of an application ask for."""
    before = (app.before_request_funcs, app.before_websocket_funcs)
    functions: list[Any] = [each for some in before for of_one in some.values() for each in of_one]
    for function in (*app.view_functions.values(), *functions):
        yield from marks_of(function)


def bare_endpoints(app: Quart) -> frozenset[str]:
    """Return the endpoints whose limit Quart never sees, for the decorator stands above the route."""
    views = app.view_functions
    inner = {id(each) for view in views.values() for each in _inner(view)}
    return frozenset(name for name, view in views.items() if view in _decorated and id(view) not in inner)


def current_connection() -> Any:
    """Return the request, or the websocket, of the running view."""
    connection: Any = request if has_request_context() else websocket
    return connection._get_current_object()


async def refuse(refusal: Refusal, fields: Iterable[Header]) -> None:
    """Raise what refuses the current request; close the current websocket, unless the server can answer it."""
    scope = current_connection().scope
    if scope["type"] == "websocket" and "websocket.http.response" not in (scope.get("extensions") or {}):
        await websocket.close(POLICY_VIOLATION, "over the limit")
    raise rejected(refusal, fields)


async def _charge(limit: RouteLimit, identify: Identify | None) -> None:
    connection = current_connection()
    identity = await identity_by(identify, connection)
    if (refusal := await ask(connection.scope, limit, identity, connection.view_args)) is not None:
        await refuse(refusal, fields_to_write(refusal, connection.scope))


def _inner(view: Any) -> Iterator[Any]:
    while (view := getattr(view, "__wrapped__", None)) is not None:
        yield view


_decorated: WeakSet[Any] = WeakSet()
"""Views as they were before `limited` decorated them."""
