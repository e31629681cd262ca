"""An adapter for requests that limits what a session sends."""

from collections.abc import Callable
from functools import partial
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from batchlimit.base.lazy import needed

with needed(__name__, "requests"):
    from requests import PreparedRequest, Response
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPResponse
    from urllib3.exceptions import HTTPError

from batchlimit import RateLimiter
from batchlimit.base.steps import run
from batchlimit.integrations.outgoing_stream import content, unsent
from batchlimit.integrations.upstream import Library, Outgoing, Unsent, Upstream, outgoing, terms_of

if TYPE_CHECKING:
    from batchlimit.integrations.outgoing_permit import OutgoingPermit

__all__ = ["LimitedAdapter"]


class LimitedAdapter(HTTPAdapter):
    """An adapter for `requests.Session` that limits what the session sends, over the whole fleet.

    It does what a LimitedTransport of `batchlimit.integrations.httpx` does, which says more.

    Each call of the session, and each redirect, is charged. What urllib3 repeats by `max_retries` is not: leave that 0,
    and retry around the session.

    Args:
        limiter: a RateLimiter, which its owner closes.
        key: as of LimitedTransport.
        options: those of LimitedTransport, and those of HTTPAdapter, such as `pool_maxsize`.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import requests
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.integrations.requests import LimitedAdapter
        >>> limiter = RateLimiter.from_url("memory://", {"api.example.com": "0/s", "*": "10/s"})
        >>> with requests.Session() as session:
        ...     session.mount("https://", LimitedAdapter(limiter, wait=0))
        ...     session.get("https://api.example.com/").status_code
        429
    """

    def __init__(
        self, limiter: RateLimiter, key: str | Callable[[PreparedRequest], str] = "{host}", **options: Any
    ) -> None:
        terms = terms_of(options)
        super().__init__(**options)
        library = Library(
            RateLimiter, _call, self._answered, attrgetter("status_code"), content, methodcaller("close"), _hold
        )  # fmt: skip
        self._upstream = Upstream(limiter, library, key, **terms)

    def __repr__(self) -> str:
        return f"<LimitedAdapter {self._upstream!r}>"

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Send a request once it is admitted, or answer it."""
        send = partial(super().send, request, *args, **kwargs)
        return run(self._upstream.steps(request, send))  # type: ignore[no-any-return]

    def _answered(self, request: PreparedRequest, answer: Unsent) -> Response:
        made = unsent(HTTPResponse, request.method, answer)
        return self.build_response(request, made)  # type: ignore[no-untyped-call, no-any-return, unused-ignore]


def _call(request: PreparedRequest) -> Outgoing:
    url = urlsplit(str(request.url))
    return outgoing(str(request.method), url.scheme, url.hostname or "", url.port, url.path)


def _hold(response: Response, permit: "OutgoingPermit") -> None:
    from batchlimit.integrations.outgoing_permit import hold_by_connection

    hold_by_connection(response.raw, permit, HTTPError, ValueError)  # the latter in a chunk that was cut off
