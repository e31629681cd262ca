"""An adapter for requests that limits what a session sends."""

from functools import partial
from typing import Any

from batchlimit.base.lazy import needed

with needed(__name__, "requests"):
    from requests import PreparedRequest, Response
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPResponse
    from urllib3.exceptions import HTTPError

from batchlimit import RateLimiter
from batchlimit.base.steps import run
from batchlimit.integrations.told import content
from batchlimit.integrations.upstream import Library, LimitedSender, answer_of, outgoing_to

__all__ = ["LimitedAdapter"]


class LimitedAdapter(LimitedSender[RateLimiter], HTTPAdapter):
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
        >>> limiter = RateLimiter.from_url("memory://", {"api.example.com": "0/s", "*": "10/s"})
        >>> with requests.Session() as session:
        ...     session.mount("https://", LimitedAdapter(limiter, wait=0))
        ...     session.get("https://api.example.com/").status_code
        429
    """

    @property
    def library(self) -> Library:  # type: ignore[override]  # its answers are of this adapter
        return Library(
            limiter=RateLimiter,
            outgoing=outgoing_to,
            answer=lambda request, answer: self.build_response(  # type: ignore[no-untyped-call, unused-ignore]
                request, answer_of(HTTPResponse, request.method, answer)
            ),
            body=content,
            hold=lambda response, permit: permit.hold_connection(response.raw, HTTPError),
        )

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Send a request once it is admitted, or answer it."""
        send = partial(super().send, request, *args, **kwargs)
        return run(self._upstream.steps(request, send))  # type: ignore[no-any-return]
