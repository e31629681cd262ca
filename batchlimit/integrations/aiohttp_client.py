"""A middleware for clients of aiohttp that limits what a session sends."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from operator import attrgetter, methodcaller
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Unpack

from batchlimit.base.lazy import needed

with needed(__name__, "aiohttp"):
    from aiohttp import ClientConnectionError, ClientRequest, ClientResponse, HttpVersion11, StreamReader
    from aiohttp.base_protocol import BaseProtocol
    from multidict import CIMultiDict, CIMultiDictProxy

from batchlimit import AsyncRateLimiter
from batchlimit.base.steps import drive
from batchlimit.integrations.upstream import Library, Outgoing, TransportTerms, Unsent, Upstream, outgoing

if TYPE_CHECKING:
    from batchlimit.integrations.outgoing_permit import OutgoingPermit

__all__ = ["LimitedClient"]


class LimitedClient:
    """A middleware for `aiohttp.ClientSession` that limits what the session sends, over the whole fleet.

    It does what an AsyncLimitedTransport of `batchlimit.integrations.httpx` does, which says more.

    Each request is charged, each redirect, and what a middleware before this one repeats. The session's `timeout`
    counts while a request waits: leave it larger than `wait`.

    Args:
        limiter: an AsyncRateLimiter, which its owner closes.
        key, terms: as of LimitedTransport.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import aiohttp
        >>> from batchlimit import AsyncRateLimiter
        >>> limiter = AsyncRateLimiter.from_url("memory://", {"api.example.com": "0/s", "*": "10/s"})
        >>> async with aiohttp.ClientSession(middlewares=(LimitedClient(limiter, wait=0),)) as session:
        ...     (await session.get("https://api.example.com/")).status
        429
    """

    def __init__(
        self,
        limiter: AsyncRateLimiter,
        key: str | Callable[[ClientRequest], str] = "{host}",
        **terms: Unpack[TransportTerms],
    ) -> None:
        self._upstream = Upstream(limiter, _LIBRARY, key, **terms)

    def __repr__(self) -> str:
        return f"<LimitedClient {self._upstream!r}>"

    async def __call__(
        self, request: ClientRequest, handler: Callable[[ClientRequest], Awaitable[ClientResponse]]
    ) -> ClientResponse:
        """Send a request once it is admitted, or answer it."""
        return await drive(self._upstream.steps(request, lambda: handler(request)))


def _call(request: ClientRequest) -> Outgoing:
    url = request.url
    return outgoing(request.method, url.scheme, url.raw_host or "", url.port, url.raw_path)


def _answered(request: ClientRequest, unsent: Unsent) -> ClientResponse:
    """Return a response as the library would have read it; there is no public way to make one."""
    loop = asyncio.get_running_loop()
    made: Any = ClientResponse(
        request.method,
        request.url,
        writer=None,
        continue100=None,
        timer=None,  # type: ignore[arg-type]
        request_info=request.request_info,
        traces=[],
        loop=loop,
        session=request.session,
        stream_writer=SimpleNamespace(output_size=0),  # type: ignore[arg-type]
    )
    made.version, made.status, made.reason = HttpVersion11, unsent.status, HTTPStatus(unsent.status).phrase
    made._headers = CIMultiDictProxy(CIMultiDict(unsent.headers))  # noqa: SLF001
    made._raw_headers = tuple([(name.encode(), text.encode()) for name, text in unsent.headers.items()])  # noqa: SLF001
    made.content = StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    made.content.feed_data(unsent.body)
    made.content.feed_eof()
    return made  # type: ignore[no-any-return]


def _hold(response: ClientResponse, permit: "OutgoingPermit") -> None:
    """Hold a permit until the connection is released: all of the body has come, or nobody wants it any more."""
    if response.connection is None:
        permit.end()
    else:
        before = sys.exception()
        response.connection.add_callback(lambda: permit.end(_failure(response, before)))


def _failure(response: ClientResponse, before: BaseException | None) -> BaseException | None:
    """Return what ended the reading of a response too soon; None: it has ended, or its reader left."""
    found = response.content.exception()
    if found is not None and type(found) is not ClientConnectionError:  # which says that it was released
        return found
    now = sys.exception()
    return now if isinstance(now, TimeoutError | asyncio.CancelledError) and now is not before else None


_LIBRARY = Library(AsyncRateLimiter, _call, _answered, methodcaller("read"), _hold, attrgetter("status"))
