"""Adapters for niquests that limit what a session sends."""

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from batchlimit.base.lazy import needed

with needed(__name__, "niquests"):
    from niquests import AsyncResponse, PreparedRequest, Response
    from niquests.adapters import AsyncHTTPAdapter, HTTPAdapter
    from niquests.packages import urllib3

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.base.steps import Steps, ahead, drive, run
from batchlimit.integrations.told import content, read_body
from batchlimit.integrations.upstream import Library, LimitedSender, Outgoing, answer_of, outgoing

if TYPE_CHECKING:
    from batchlimit.integrations.outgoing_permit import OutgoingPermit

__all__ = ["AsyncNiquestsAdapter", "NiquestsAdapter"]


class NiquestsAdapter(LimitedSender[RateLimiter], HTTPAdapter):  # type: ignore[misc]
    """An adapter for `niquests.Session` that limits what the session sends, over the whole fleet.

    It does what a LimitedTransport of `batchlimit.integrations.httpx` does, which says more.

    Each call of the session, and each redirect, is charged. What urllib3 repeats by `max_retries` is not: leave that 0,
    and retry around the session. A session gives its own options to no adapter that it is given: give them to this one.

    A multiplexed request waits for its tokens when it is sent, and what upstream says is heeded when its response has
    come. With `concurrency` nothing is multiplexed.

    Args:
        limiter: a RateLimiter, which its owner closes.
        key: as of LimitedTransport.
        options: those of LimitedTransport, and those of HTTPAdapter, such as `pool_maxsize`.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import niquests
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", {"api.example.com": "0/s", "*": "10/s"})
        >>> with niquests.Session() as session:
        ...     session.mount("https://", NiquestsAdapter(limiter, wait=0))
        ...     session.get("https://api.example.com/").status_code
        429
    """

    def send(self, request: PreparedRequest, *args: Any, multiplexed: bool = False, **kwargs: Any) -> Response:
        """Send a request once it is admitted, or answer it."""
        kwargs["multiplexed"] = multiplexed and self._upstream.admission is None
        return run(self._upstream.steps(request, partial(super().send, request, *args, **kwargs)))


class AsyncNiquestsAdapter(LimitedSender[AsyncRateLimiter], AsyncHTTPAdapter):  # type: ignore[misc]
    """A NiquestsAdapter for `niquests.AsyncSession`.

    Args:
        limiter: an AsyncRateLimiter, which its owner closes.
        key: as of LimitedTransport.
        options: those of LimitedTransport, and those of AsyncHTTPAdapter, such as `pool_maxsize`.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import niquests
        >>> from batchlimit import AsyncRateLimiter
        >>> limiter = AsyncRateLimiter.from_url("memory://", {"api.example.com": "0/s", "*": "10/s"})
        >>> async with niquests.AsyncSession() as session:
        ...     session.mount("https://", AsyncNiquestsAdapter(limiter, wait=0))
        ...     (await session.get("https://api.example.com/")).status_code
        429
    """

    async def send(
        self, request: PreparedRequest, *args: Any, multiplexed: bool = False, **kwargs: Any
    ) -> AsyncResponse:
        """Send a request once it is admitted, or answer it."""
        kwargs["multiplexed"] = multiplexed and self._upstream.admission is None
        return await drive(self._upstream.steps(request, partial(super().send, request, *args, **kwargs)))


def _call(request: PreparedRequest) -> Outgoing:
    url = urlsplit(str(request.url))
    path = urllib3.util.parse_url(url.path).path if "/." in url.path else url.path or "/"
    return outgoing(str(request.method), url.scheme, url.hostname or "", url.port, path)


def _async_later(response: AsyncResponse, heed: Callable[[Response], Steps[None]]) -> bool:
    async def come(found: Response, **_: object) -> None:
        await drive(heed(found))

    return _on_response(response, come)


def _on_response(response: Response, hook: Callable[..., Any]) -> bool:
    """Call a hook before those of its caller, when a response of a multiplexed session comes; False: it is here."""
    request: Any = response.request
    if response.lazy:
        request.hooks["response"] = [hook, *request.hooks["response"]]
    return bool(response.lazy)


def _hold(response: Response, permit: "OutgoingPermit") -> None:
    """Hold a permit until all of the body has come, or nobody wants it any more; of either kind of session."""
    raw, before = response.raw, sys.exception()
    assert raw is not None
    release = raw.release_conn

    def releasing() -> None:
        release()
        error = sys.exception()
        permit.end(error if isinstance(error, urllib3.exceptions.HTTPError) and error is not before else None)

    def noted(read: Callable[..., Any]) -> Callable[..., Any]:
        def steps(*args: Any, **options: Any) -> Steps[Any]:
            with permit.read():
                found = yield read(*args, **options)
            if raw.closed:
                permit.end()
            return found

        return lambda *args, **options: ahead(steps(*args, **options))

    raw.release_conn, raw.read, raw.read1 = releasing, noted(raw.read), noted(raw.read1)
    if raw.closed:
        permit.end()


def _async_hold(response: AsyncResponse, permit: "OutgoingPermit") -> None:
    _hold(response, permit)
    raw: Any = response.raw
    close = raw.close

    async def closing() -> None:
        try:
            await close()
        finally:  # a response that is cancelled here does not release its connection
            permit.end()

    raw.close = closing


NiquestsAdapter.library = Library(
    limiter=RateLimiter,
    outgoing=_call,
    answer=lambda request, answer: HTTPAdapter().build_response(
        request, answer_of(urllib3.HTTPResponse, request.method, answer)
    ),
    body=content,
    hold=_hold,
    later=lambda response, heed: _on_response(response, lambda found, **_: run(heed(found))),
)
AsyncNiquestsAdapter.library = NiquestsAdapter.library._replace(
    limiter=AsyncRateLimiter,
    answer=lambda request, answer: AsyncHTTPAdapter().build_response(
        request, answer_of(urllib3.AsyncHTTPResponse, request.method, answer)
    ),
    body=lambda response: drive(read_body(response, anext)),
    hold=_async_hold,
    later=_async_later,
)
