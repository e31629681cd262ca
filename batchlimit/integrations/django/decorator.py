"""limited: a decorator for views of Django, of either kind."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.http import HttpResponse

from batchlimit.integrations.django.hold import Hold, answer, answer_async, hold_of
from batchlimit.integrations.enforcement import RouteLimit, unprotected
from batchlimit.integrations.enforcement.route import limit_for_route
from batchlimit.rules.rule import Charge, RuleCost

View = TypeVar("View", bound=Callable[..., Any])
MISSING = "RateLimitMiddleware is not in MIDDLEWARE"
asked: list[RouteLimit] = []
"""What views ask for, as far as their modules were imported: the system check looks for their rules."""


def limited(
    key: str, *, cost: RuleCost | None = None, charge: Charge | Sequence[int | str] | None = None
) -> Callable[[View], View]:
    """Return a decorator for a view: its requests are charged to the rule with this key, too.

    It takes functions, `async def` functions, and methods of class-based views by Django's `method_decorator`. The
    middleware has to be in MIDDLEWARE: without it the view is answered 503, and the log says why.

    Args:
        key, cost, charge: what is asked for, as of RouteLimit of `batchlimit.integrations.enforcement`.

    Returns:
        The decorator. A key that no rule has is an error of `manage.py check`; at a request, a 503.

    Raises:
        RulesError: an argument cannot work.

    Example:
        >>> @limited("search:{user}", cost=2)
        ... def search(request):
        ...     return HttpResponse("found")
    """
    limit = limit_for_route(key, cost, charge)
    asked.append(limit)

    def decorate(view: View) -> View:
        async def ask(request: Any, *args: Any, **kwargs: Any) -> Any:
            if (hold := _hold(request, limit)) is None:
                return HttpResponse(status=503)
            if (refusal := await hold.ask_async(limit, {}, kwargs)) is not None:
                return await answer_async(request, refusal)
            response = view(request, *args, **kwargs)
            return await response if inspect.isawaitable(response) else response

        if iscoroutinefunction(view):
            return wraps(view)(ask)  # type: ignore[return-value]

        @wraps(view)
        def limited_view(request: Any, *args: Any, **kwargs: Any) -> Any:
            # `method_decorator` passes `dispatch` of an asynchronous class-based view, which returns a coroutine.
            owner = getattr(getattr(view, "func", None), "__self__", None)
            if getattr(owner, "view_is_async", False) or _is_on_a_loop():
                return ask(request, *args, **kwargs)
            if (hold := _hold(request, limit)) is None:
                return HttpResponse(status=503)
            if (refusal := hold.ask(limit, {}, kwargs)) is not None:
                return answer(request, refusal)
            return view(request, *args, **kwargs)

        return limited_view  # type: ignore[return-value]

    return decorate


def _hold(request: Any, limit: RouteLimit) -> Hold | None:
    if (hold := hold_of(request)) is None:
        unprotected(limit.key, MISSING)
    return hold


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
