"""RateLimitMiddleware: rules before the views of Django, under WSGI and ASGI, to the end of its response."""

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http.response import HttpResponse, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from batchlimit.base.steps import Steps, drive, run
from batchlimit.integrations.carried import OPERATION, give_back_permit
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.django.configuration import asked, awaitable, blocking, configuration, front, fronts
from batchlimit.integrations.enforcement import HOLD_NAME, Outcome, Refusal, Response, RouteLimit, unprotected
from batchlimit.integrations.enforcement.plan import limit_for_route
from batchlimit.integrations.front import AsyncFront, Front
from batchlimit.integrations.headers import texts
from batchlimit.integrations.wsgi.middleware import ResponseEnd, fields_of
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
            if (hold := getattr(request, HOLD_NAME, None)) is not None:
                hold.front.enforcer.counters.unanswered(refusal.rules, error)
    return HttpResponse(refusal.body, status=refusal.status, content_type="application/problem+json")


def spare(request: Any) -> None:
    """Give back the permit of a refused request: its answer tells nothing about the load."""
    give_back_permit(getattr(request, "scope", None) or request.META)


class Ending(ResponseEnd):
    """Watches one response: it ends when the server closes it, or another middleware puts another in its place."""

    def __init__(self, response: Any, error: BaseException | None, ended: Callable[[Response], None]) -> None:
        super().__init__(ended)
        self._status, self._error = response.status_code, error
        self._told = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.items()]
        if not response.streaming:
            self._sent, self._complete = len(response.content), True
        elif response.is_async:
            response.streaming_content = self._async_parts(response.streaming_content)
        else:
            response.streaming_content = self._parts(response.streaming_content)
        # `response.close` calls these, once. Django has no public name for them; a `close` of ours would be a cycle.
        response._resource_closers.append(self.end)  # noqa: SLF001

    @contextmanager
    def _read(self) -> Iterator[None]:
        """Note how a body ended that is read in the block."""
        try:
            yield
            self._complete = True
        except Exception as error:
            self._error = error
            raise

    def _parts(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        with self._read():
            for part in parts:
                self._sent += len(part)
                yield part

    async def _async_parts(self, parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        with self._read():
            async for part in parts:
                self._sent += len(part)
                yield part


class RateLimitMiddleware:
    """Holds rules against every request, before its view is called; named in MIDDLEWARE.

    It charges, refuses and answers as RateLimitMiddleware of `batchlimit.integrations.asgi` does, which says more.
    Middleware that stands above it sees the refused requests.

    Under WSGI threads ask a RateLimiter, under ASGI tasks ask an AsyncRateLimiter. A server may make the application
    before it forks: connections and tokens are those of each worker.

    Args:
        get_response: what Django passes.

    Raises:
        ImproperlyConfigured: the setting `BATCHLIMIT` cannot work.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._get_response, self._is_async = get_response, iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)
        front(self._is_async)

    def __repr__(self) -> str:
        return f"<RateLimitMiddleware before {self._get_response}>"

    def __call__(self, request: Any) -> Any:
        """Serve one request, as any middleware."""
        go, called = (drive, awaitable) if self._is_async else (run, blocking)
        return go(self._served(request, front(self._is_async), called))

    def process_exception(self, request: Any, error: Exception) -> None:
        """Keep what a view raised, for `charge`."""
        if (hold := getattr(request, HOLD_NAME, None)) is not None:
            hold.error = error

    def _served(self, request: Any, front: Front | AsyncFront, called: Callable[..., Any]) -> Steps[Any]:
        """Ask the rules, and the application if they let the request pass; return the response."""
        meta, path = request.META, request.path
        peer, root = meta.get("REMOTE_ADDR") or None, meta.get("SCRIPT_NAME", "")  # Django routes by what is below it
        # The request alone has the hold: a traceback that Django keeps of a 404 would keep a variable of this function.
        Hold(front, (yield front.admit(request.method, path, peer, fields_of(meta), request, root=root)), request)
        if (refusal := getattr(request, HOLD_NAME).outcome.refusal) is not None:
            return _told(request, (yield from answering(request, refusal, called)))
        try:
            response = yield self._get_response(request)
        except BaseException as error:
            status = 499 if isinstance(error, asyncio.CancelledError) else 500
            getattr(request, HOLD_NAME).settle(Response(status, error=error, complete=False))
            raise
        return _told(request, response)


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
    if (hold := getattr(request, HOLD_NAME, None)) is None:
        unprotected(limit.key, MISSING)
        return HttpResponse(status=503)
    refusal = yield called(hold.front.enforcer.ask)(limit, hold.outcome, {}, parameters)
    return None if refusal is None else (yield from answering(request, refusal, called))


def statistics() -> EnforcementStatistics:
    """Return what became of the requests so far, by rule, in this process.

    Returns:
        The EnforcementStatistics; under ASGI those of the event loop.
    """
    counts: EnforcementStatistics = front(True in fronts).enforcer.statistics()
    return counts


def _told(request: Any, response: Any) -> Any:
    """Add the fields, and have it settled when the response has ended."""
    hold: Hold = getattr(request, HOLD_NAME)
    outcome = hold.outcome
    for name, value in texts(outcome.headers if outcome.refusal is None else outcome.refusal.fields):
        response.headers[name] = value
    if outcome.charges:
        Ending(response, hold.error, hold.settle)
    delattr(request, HOLD_NAME)
    return response


@sync_and_async_middleware  # type: ignore[untyped-decorator]  # Django has no types
def operation_names(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Tell a ConcurrencyLimitMiddleware before the project the route of each request; named in MIDDLEWARE.

    Args:
        get_response: what Django passes.

    Returns:
        The middleware.

    Example:
        >>> MIDDLEWARE = ["batchlimit.integrations.django.operation_names"]
    """

    def steps(request: Any) -> Steps[Any]:
        response = yield get_response(request)
        if (match := request.resolver_match) is not None:
            about = request.scope if hasattr(request, "scope") else request.environ
            about[OPERATION] = f"/{match.route}"
        return response

    if iscoroutinefunction(get_response):
        return markcoroutinefunction(lambda request: drive(steps(request)))
    return lambda request: run(steps(request))
