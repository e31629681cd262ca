"""The rules held against one request of Django, by threads or by tasks, and what its view asks for by `limited`."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.http.response import HttpResponse, HttpResponseBase

from batchlimit.base.steps import Steps, drive, run
from batchlimit.integrations.carried import give_back_permit
from batchlimit.integrations.django.configuration import asked, awaitable, blocking, configuration
from batchlimit.integrations.enforcement import HOLD_NAME, Outcome, Refusal, Response, RouteLimit, unprotected
from batchlimit.integrations.enforcement.plan import limit_for_route
from batchlimit.integrations.front import AsyncFront, Front
from batchlimit.rules.rule import ChargeSetting, RuleCost

View = TypeVar("View", bound=Callable[..., Any])
_Values = Mapping[str, object]
_Called = Callable[..., Any]
"""`blocking` in a thread, `awaitable` in a task."""
MISSING = "RateLimitMiddleware is not in MIDDLEWARE"


class Hold:
    """What the rules say of one request, by a front of threads or of tasks, as long as its response is not there."""

    def __init__(self, front: Front | AsyncFront, outcome: Outcome, request: Any) -> None:
        self.front: Any = front
        self.outcome = outcome
        self.error: BaseException | None = None  # what a view raised
        self._loop = None if isinstance(front, Front) else asyncio.get_running_loop()  # None: a thread serves it
        setattr(request, HOLD_NAME, self)

    def settle(self, response: Response) -> None:
        """Charge what the response says, from whatever thread; on the loop of the request, if it has one."""
        if self._loop is None:
            self.front.settle(self.outcome, response)
        elif self.outcome.charges and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.front.settle, self.outcome, response)


def hold_of(request: Any) -> Hold | None:
    """Return what the middleware has made; None: the request has not passed through it."""
    return getattr(request, HOLD_NAME, None)


def answering(request: Any, refusal: Refusal, called: _Called) -> Steps[Any]:
    """Return what ON_REJECTED answers, or problem details where that is None or raises; the middleware adds fields."""
    spare(request)
    if (own := configuration()["ON_REJECTED"]) is not None:
        try:
            if isinstance(response := (yield called(own)(request, refusal)), HttpResponseBase):
                return response
            if response is not None:
                raise TypeError(f"it returned {response!r}, which is no response")
        except Exception as error:  # noqa: BLE001  told in the log
            if (hold := hold_of(request)) is not None:
                hold.front.enforcer.counters.unanswered(refusal.rules, error)
    return HttpResponse(refusal.body, status=refusal.status, content_type="application/problem+json")


def spare(request: Any) -> None:
    """Give back the permit of a refused request: its answer tells nothing about the load."""
    give_back_permit(getattr(request, "scope", None) or request.META)


def limited(key: str, *, cost: RuleCost | None = None, charge: ChargeSetting = None) -> Callable[[View], View]:
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
            if (answer := await drive(_refusing(request, limit, kwargs, awaitable))) is not None:
                return answer
            response = view(request, *args, **kwargs)
            return await response if inspect.isawaitable(response) else response

        if iscoroutinefunction(view):
            return wraps(view)(ask)  # type: ignore[return-value]

        @wraps(view)
        def limited_view(request: Any, *args: Any, **kwargs: Any) -> Any:
            # `method_decorator` passes `dispatch` of an asynchronous class-based view, which returns a coroutine.
            owner = getattr(getattr(view, "func", None), "__self__", None)
            if getattr(owner, "view_is_async", False) or asyncio._get_running_loop() is not None:  # noqa: SLF001
                return ask(request, *args, **kwargs)
            answer = run(_refusing(request, limit, kwargs, blocking))
            return view(request, *args, **kwargs) if answer is None else answer

        return limited_view  # type: ignore[return-value]

    return decorate


def _refusing(request: Any, limit: RouteLimit, parameters: _Values, called: _Called) -> Steps[Any]:
    """Charge a request to what its view asks for; return the answer of a refusal, None: there is none."""
    if (hold := hold_of(request)) is None:
        unprotected(limit.key, MISSING)
        return HttpResponse(status=503)
    refusal = yield called(hold.front.enforcer.ask)(limit, hold.outcome, {}, parameters)
    return None if refusal is None else (yield from answering(request, refusal, called))
