"""limited: a decorator for handlers of aiohttp that ask for one more rule."""

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from aiohttp import web

from batchlimit.integrations.aiohttp.hold import CALL_PERMIT, HOLD, AiohttpHold, answer
from batchlimit.integrations.enforcement import AsyncEnforcer, unprotected
from batchlimit.integrations.enforcement.route import limit_for_route, mark, marks_of
from batchlimit.integrations.held_permit import PERMIT, give_back_permit
from batchlimit.rules.rule import Charge, RuleCost

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


def check_routes(app: web.Application, enforcer: AsyncEnforcer) -> None:
    """Check that there is a rule for what each route asks for, those of subapplications too. Raises RulesError."""
    for route in app.router.routes():
        methods = vars(route.handler).values() if isinstance(route.handler, type) else ()
        for handler in (route.handler, *methods):
            for limit in marks_of(handler):
                enforcer.check(limit)
