"""Transports for httpx and httpx2 that limit what a client sends: below its retries, so each attempt is charged.

They import neither library: the requests that come say of which one they are. So they fit under SDKs that sit on
either, by their `http_client` argument.
"""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, closing
from importlib import import_module
from operator import methodcaller
from typing import Any, Generic, Self, Unpack

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.base.redaction import shown
from batchlimit.base.steps import Steps, drive, run
from batchlimit.integrations.upstream import L, Library, Outgoing, TransportTerms, Unsent, Upstream, again, outgoing

__all__ = ["AsyncLimitedTransport", "LimitedTransport"]

_Base: Any = object


class _Limited(Generic[L]):
    """What both transports know: how requests are limited, and the transport that sends them."""

    library: Library
    _usual: str
    _sends: str

    def __init__(
        self, limiter: L, key: str | Callable[[Any], str] = "{host}", *, transport: Any = None,
        **terms: Unpack[TransportTerms],
    ) -> None:  # fmt: skip
        if not (transport is None or callable(getattr(transport, self._sends, None))):
            raise TypeError(f"transport must be like {self._usual}(), not {shown(transport)}")
        self._inner, self._upstream = transport, Upstream(limiter, self.library, key, **terms)
        self._lock = threading.Lock()  # held to make the transport that sends: it is made once

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._upstream!r} on {self._inner!r}>"

    def _sender(self, request: Any) -> Any:
        if self._inner is None:
            with self._lock:
                if self._inner is None:
                    self._inner = getattr(_library(request), self._usual)()
        return self._inner


class LimitedTransport(_Limited[RateLimiter], _Base):  # type: ignore[misc]  # a BaseTransport of both libraries, to type checkers
    """A transport for `httpx.Client` and `httpx2.Client` that limits what the client sends, over the whole fleet.

    A request waits for its tokens, up to `wait`. One that would wait longer is not sent: it is answered 429 with
    `Retry-After`, as if upstream had said so, and 503 while the store is away. Nothing is raised for that, because SDKs
    take an exception of a transport for a lost connection. Each attempt of a client that retries is charged.

    A 429 or 503 of upstream that says when to come back (`Retry-After` in seconds or as a date, `retry-after-ms`)
    pauses the key for all processes: see `RateLimiter.pause`. The response itself is passed on untouched.

    Args:
        limiter: a RateLimiter, which its owner closes.
        key: what a request is charged to (default "{host}"): text with the fields {host}, {port}, {scheme}, {method},
            {path}, or a function of the request.
        cost: whole tokens of each attempt (default 1), or a function of the request. If it returns more than the
            burst of the key, the answer is a 429 that says not to come back.
        wait: seconds that a request waits for tokens at most (default 30); 0: not at all, None: no limit. It is no part
            of the client's timeouts.
        transport: what sends the requests (default None: an `HTTPTransport()` of the library that the requests are of).
            A client's own `verify`, `cert`, `http2`, `limits` and `proxy` hold for no transport that it is given:
            give them to this one.
        longest: seconds that a pause lasts at most, whatever `Retry-After` says (default 600).
        unsaid: seconds of the pause where a 429 does not say when to come back (default 1); 0: none.
        observe: whether calls are held back where upstream says that little is left, before its 429 (default False).
            Or a dict from what it counts, such as "requests" or "tokens", to the key to hold back.
        concurrency: how many requests of a key may be under way at once from here (a whole number), or a function that
            makes a law, such as `AIMD`. A request ends when its response was read or closed. Others wait for a place,
            in `wait`, and are answered 429 after it. A KeyedConcurrencyLimiter has limits by key, a
            SharedConcurrencyLimiter has those of the fleet; their owner closes them (default None: no limit).
        priority: of a request among those that wait, from 1 (default) to 100; or a function of the request.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import httpx
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", {"api.example.com": "1/hour", "*": "10/s"})
        >>> upstream = httpx.MockTransport(lambda request: httpx.Response(200))
        >>> with httpx.Client(transport=LimitedTransport(limiter, wait=0, transport=upstream)) as client:
        ...     [client.get("https://api.example.com/").status_code for _ in range(2)]
        [200, 429]
    """

    _usual, _sends = "HTTPTransport", "handle_request"

    def handle_request(self, request: Any) -> Any:
        """Send a request once it is admitted, or answer it."""
        return run(self._upstream.steps(request, lambda: self._sender(request).handle_request(request)))

    def close(self) -> None:
        """Close the transport below; the limiter stays open."""
        if self._inner is not None:
            self._inner.close()

    def __enter__(self) -> Self:
        if self._inner is not None:
            self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._inner is not None:
            self._inner.__exit__(*error)


class AsyncLimitedTransport(_Limited[AsyncRateLimiter], _Base):  # type: ignore[misc]
    """A LimitedTransport for `httpx.AsyncClient` and `httpx2.AsyncClient`.

    Args:
        limiter: an AsyncRateLimiter, which its owner closes.
        key, terms: as of LimitedTransport.
        transport: what sends the requests (default None: an `AsyncHTTPTransport()` of their library).

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import httpx2
        >>> from batchlimit import AsyncRateLimiter
        >>> limiter = AsyncRateLimiter.from_url("memory://", {"api.example.com": "1/hour", "*": "10/s"})
        >>> upstream = httpx2.MockTransport(lambda request: httpx2.Response(200))
        >>> limited = AsyncLimitedTransport(limiter, wait=0, transport=upstream)
        >>> async with httpx2.AsyncClient(transport=limited) as client:
        ...     [(await client.get("https://api.example.com/")).status_code for _ in range(2)]
        [200, 429]
    """

    _usual, _sends = "AsyncHTTPTransport", "handle_async_request"

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request once it is admitted, or answer it."""
        return await drive(self._upstream.steps(request, lambda: self._sender(request).handle_async_request(request)))

    async def aclose(self) -> None:
        """Close the transport below; the limiter stays open."""
        if self._inner is not None:
            await self._inner.aclose()

    async def __aenter__(self) -> Self:
        if self._inner is not None:
            await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._inner is not None:
            await self._inner.__aexit__(*error)


def _call(request: Any) -> Outgoing:
    url = request.url
    path = url.raw_path.partition(b"?")[0].decode()
    return outgoing(request.method, url.scheme, url.raw_host.decode(), url.port, path)


def _response(request: Any, answer: Unsent) -> Any:
    library = _library(request)  # what is not read yet is as a response of upstream, also to who streams it
    body = library.ByteStream(answer.body)
    return library.Response(answer.status, headers=answer.headers, stream=body, request=request)


def _library(one: Any) -> Any:
    """Return the library that a request or a response is of: httpx, httpx2, or one that is like them."""
    return import_module(type(one).__module__.partition(".")[0])


def _body(response: Any, read: Callable[..., Any], again: Callable[..., Any]) -> Steps[bytes]:
    """Read the body of a response, decoded. A later reader gets the same bytes, and the same error."""
    parts, library = list[bytes](), _library(response)
    try:
        yield read(response.stream, parts)
    except Exception as error:
        response.stream = library.Response(response.status_code, content=again(parts, error)).stream
        raise
    sent = b"".join(parts)
    response.stream = library.ByteStream(sent)
    return library.Response(response.status_code, headers=response.headers, content=sent).content  # type: ignore[no-any-return]


def _read(stream: Any, parts: list[bytes]) -> None:
    with closing(stream):
        parts.extend(stream)


async def _async_read(stream: Any, parts: list[bytes]) -> None:
    async with aclosing(stream):
        async for part in stream:
            parts.append(part)  # noqa: PERF401  what came before an error is kept


async def _async_again(parts: list[bytes], error: Exception) -> AsyncIterator[bytes]:
    for part in again(parts, error):
        yield part


LimitedTransport.library = Library(
    limiter=RateLimiter,
    outgoing=_call,
    answer=_response,
    body=lambda response: run(_body(response, _read, again)),
    hold=lambda response, permit: permit.hold_stream(response, _library(response)),
)
AsyncLimitedTransport.library = LimitedTransport.library._replace(
    limiter=AsyncRateLimiter,
    body=lambda response: drive(_body(response, _async_read, _async_again)),
    close=methodcaller("aclose"),
)
