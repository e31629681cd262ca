"""RateLimitMiddleware: rules before the views of Django, under WSGI and ASGI, to the end of its response.

`operation_names` tells a concurrency limit before the project of which route a request is.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.utils.decorators import sync_and_async_middleware

from batchlimit.integrations.carried import OPERATION
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.django.configuration import async_front, front
from batchlimit.integrations.django.hold import AsyncHold, Hold, admitted, answer, answer_async, hold_of
from batchlimit.integrations.enforcement import HOLD_NAME, Response
from batchlimit.integrations.headers import Header, texts
from batchlimit.integrations.wsgi.middleware import do_later


class Ending:
    """Watches one response, and tells of its end once: when the server closes it, or nobody keeps it any more."""

    def __init__(self, response: Any, error: BaseException | None, ended: Callable[[Response], None]) -> None:
        self._ended: Callable[[Response], None] | None = ended
        self._status, self._error = response.status_code, error
        self._told: list[Header] = [
            (name.lower().encode(), value.encode("latin-1")) for name, value in response.items()
        ]
        self._sent, self._complete = 0, False
        if not response.streaming:
            self._sent, self._complete = len(response.content), True
        elif response.is_async:
            response.streaming_content = self._async_parts(response.streaming_content)
        else:
            response.streaming_content = self._parts(response.streaming_content)
        # `response.close` calls these, once. Django has no public name for them; a `close` of ours would be a cycle.
        response._resource_closers.append(self.end)  # noqa: SLF001

    def __del__(self) -> None:
        if (ended := self._ended) is not None:  # another middleware has put another response in its place
            self._ended = None
            do_later(ended, self._response())

    def end(self) -> None:
        """Tell of the end."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(self._response())

    def _response(self) -> Response:
        return Response(self._status, self._told, self._error, self._complete, self._sent)

    def _parts(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        try:
            for part in parts:
                self._sent += len(part)
                yield part
            self._complete = True
        except Exception as error:
            self._error = error
            raise

    async def _async_parts(self, parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        try:
            async for part in parts:
                self._sent += len(part)
                yield part
            self._complete = True
        except Exception as error:
            self._error = error
            raise


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
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)
            async_front()
            self._serve: Callable[[Any], Any] = self._serve_async
        else:
            front()
            self._serve = self._serve_sync

    def __repr__(self) -> str:
        return f"<RateLimitMiddleware before {self._get_response}>"

    def __call__(self, request: Any) -> Any:
        """Serve one request, as any middleware."""
        return self._serve(request)

    def process_exception(self, request: Any, error: Exception) -> None:
        """Keep what a view raised, for `charge`."""
        if (hold := hold_of(request)) is not None:
            hold.error = error

    def _serve_sync(self, request: Any) -> Any:
        hold = Hold(front(), admitted(front(), request), request)
        if hold.outcome.refusal is not None:
            return _told(request, answer(request, hold.outcome.refusal))
        try:
            response = self._get_response(request)
        except BaseException as error:
            hold.settle(Response(500, error=error, complete=False))
            raise
        return _told(request, response)

    async def _serve_async(self, request: Any) -> Any:
        # The request alone has the hold: a traceback that Django keeps of a 404 would keep a variable of this function.
        AsyncHold(async_front(), await admitted(async_front(), request), request)
        if (refusal := getattr(request, HOLD_NAME).outcome.refusal) is not None:
            return _told(request, await answer_async(request, refusal))
        try:
            response = await self._get_response(request)
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
    if not iscoroutinefunction(get_response):

        def named(request: Any) -> Any:
            response = get_response(request)
            _name(request)
            return response

        return named

    async def named_async(request: Any) -> Any:
        response = await get_response(request)
        _name(request)
        return response

    return named_async


def _name(request: Any) -> None:
    if (match := request.resolver_match) is not None:
        about = request.scope if hasattr(request, "scope") else request.environ
        about[OPERATION] = f"/{match.route}"
