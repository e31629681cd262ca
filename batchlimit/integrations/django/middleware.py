"""RateLimitMiddleware: rules before the views of Django, under WSGI and ASGI, to the end of its response.

`operation_names` tells a concurrency limit before the project of which route a request is.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.utils.decorators import sync_and_async_middleware

from batchlimit.base.steps import Steps, drive, run
from batchlimit.integrations.carried import OPERATION
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.django.configuration import async_front, awaitable, blocking, front
from batchlimit.integrations.django.hold import Hold, answering, hold_of
from batchlimit.integrations.enforcement import HOLD_NAME, Response
from batchlimit.integrations.front import AsyncFront, Front
from batchlimit.integrations.headers import texts
from batchlimit.integrations.wsgi.middleware import ResponseEnd, fields_of


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
            async_front()
        else:
            front()

    def __repr__(self) -> str:
        return f"<RateLimitMiddleware before {self._get_response}>"

    def __call__(self, request: Any) -> Any:
        """Serve one request, as any middleware."""
        if self._is_async:
            return drive(self._served(request, async_front(), awaitable))
        return run(self._served(request, front(), blocking))

    def process_exception(self, request: Any, error: Exception) -> None:
        """Keep what a view raised, for `charge`."""
        if (hold := hold_of(request)) is not None:
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


def statistics() -> EnforcementStatistics:
    """Return what became of the requests so far, by rule, in this process.

    Returns:
        The EnforcementStatistics; under ASGI those of the event loop.
    """
    found = async_front() if async_front.cache_info().currsize else front()
    return found.enforcer.statistics()


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
