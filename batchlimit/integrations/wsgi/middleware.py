"""RateLimitMiddleware: rules before a WSGI application; and WSGIExchange, which watches its response to the end."""

from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self, Unpack

from batchlimit.integrations.address import Identify
from batchlimit.integrations.carried import behind, give_back_permit
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import SHOWN, Refusal, Response
from batchlimit.integrations.front import Front, WebOptions, wanted
from batchlimit.integrations.headers import Header, texts
from batchlimit.integrations.source import LimiterSource, RulesSource

if TYPE_CHECKING:
    from batchlimit.integrations.permits import ConcurrencyLimit

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
WSGIApp = Callable[[Any, Any], Iterable[bytes]]
"""Any application: frameworks have types of their own for these two."""
OnRejected = Callable[[Environ, Refusal], WSGIApp]
_FIELDS = [(name.encode(), f"HTTP_{name.upper().replace('-', '_')}") for name in wanted]


class RateLimitMiddleware:
    """Holds rules against every request of a WSGI application, before the application is called.

    It charges, refuses and answers as RateLimitMiddleware of `batchlimit.integrations.asgi` does, which says more.

    A server may make the application before it forks: connections and tokens are those of each worker.

    Args:
        app: the application.
        limiter, rules: as there, but a RateLimiter: made at the first request, and closed when the process ends.
        identify: a function of the environ, as that of the scope there, but not asynchronous (default None).
        on_rejected: a function of the environ and the Refusal that returns the WSGI application which answers (default
            None: problem details). The fields of the refusal are added to its answer.
        concurrency, headers, proxies, ipv6_prefix, unidentified, checks, enabled: as there, with the same defaults.

    Attributes:
        front: the Front, which holds the rules against requests.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from batchlimit.rules import Rule
        >>> def app(environ, start_response):
        ...     start_response("200 OK", [])
        ...     return [b"hello"]
        >>> limited = RateLimitMiddleware(app, "memory://", [Rule("all", "1/hour", key="all:{ip}")])
        >>> environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "192.0.2.1"}
        >>> statuses = []
        >>> for _ in range(2):
        ...     body = limited(environ, lambda status, headers: statuses.append(status))
        >>> statuses
        ['200 OK', '429 Too Many Requests']
    """

    def __init__(
        self,
        app: WSGIApp,
        limiter: LimiterSource,
        rules: RulesSource,
        *,
        identify: Identify[Environ] | None = None,
        on_rejected: OnRejected | None = None,
        concurrency: "ConcurrencyLimit | None" = None,
        **options: Unpack[WebOptions],
    ) -> None:
        self.app, self._on_rejected = app, on_rejected
        needed = concurrency if options.get("enabled", True) else None
        self._concurrency = behind(needed, __package__, self._limited)
        self.front = Front(limiter, rules, identify=identify, **options)

    def __repr__(self) -> str:
        return f"<RateLimitMiddleware {self.front.enforcer.rules}>"

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request, as any WSGI application."""
        serve = self._concurrency or self._limited
        return serve(environ, start_response)

    def statistics(self) -> EnforcementStatistics:
        """Return the EnforcementStatistics of this process: what became of the requests so far, by rule."""
        return self.front.statistics()

    def _limited(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a request that has its permit, or needs none."""
        path, root = target_of(environ)
        peer, fields = environ.get("REMOTE_ADDR") or None, fields_of(environ)
        outcome = self.front.admit(environ["REQUEST_METHOD"], path, peer, fields, environ, root=root)
        if outcome.refusal is not None:
            give_back_permit(environ)
            if self._on_rejected is not None:
                try:
                    told: WSGIApp | None = self._on_rejected(environ, outcome.refusal)
                    app = None if told is None else partial(told, environ)  # TypeError: it is no application
                except Exception as error:  # noqa: BLE001  told in the log
                    self.front.enforcer.counters.unanswered(outcome.refusal.rules, error)
                    app = None
                if app is not None:
                    return app(with_headers(start_response, outcome.refusal.fields))
            return answer(outcome.refusal, environ, start_response)
        environ[SHOWN] = outcome.shown
        if outcome.charges:
            settle = partial(self.front.settle, outcome)
            return WSGIExchange(start_response, outcome.headers, settle).run(self.app, environ)
        if outcome.headers:
            start_response = with_headers(start_response, outcome.headers)
        return self.app(environ, start_response)


def target_of(environ: Environ) -> tuple[str, str]:
    """Return the whole path of a request, and where the application is mounted."""
    path = _text(environ.get("PATH_INFO", ""))
    root = environ.get("SCRIPT_NAME")
    if not root:
        return path, ""
    root = _text(root)
    return root + path, root


def _text(told: str) -> str:
    """Return what the server told byte by byte; bytes that are no UTF-8 become U+FFFD, text that is no bytes stays."""
    try:
        return told.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return told


def fields_of(environ: Environ) -> Iterable[Header]:
    """Return the header fields of a request that a Front looks at."""
    return [(name, environ[key].encode("latin-1", "replace")) for name, key in _FIELDS if key in environ]


def answer(refusal: Refusal, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Answer a request with a refusal; HEAD gets no body."""
    length = (b"content-length", b"%d" % len(refusal.body))
    start_response(f"{refusal.status} {HTTPStatus(refusal.status).phrase}", texts([*refusal.headers, length]))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [refusal.body]


def with_headers(start_response: StartResponse, headers: Sequence[Header]) -> StartResponse:
    """Return a `start_response` that adds fields."""
    ours = texts(headers)

    def start(status: str, fields: list[tuple[str, str]], *exc_info: object) -> Callable[[bytes], object]:
        return start_response(status, [*fields, *ours], *exc_info)

    return start


class ResponseEnd:
    """Tells of the end of one response, once: when that is known, or when nobody keeps the response any more."""

    __slots__ = ("_complete", "_ended", "_error", "_sent", "_status", "_told")

    def __init__(self, ended: Callable[[Response], None]) -> None:
        self._ended: Callable[[Response], None] | None = ended
        self._status, self._sent, self._complete = 500, 0, False
        self._told: list[Header] = []
        self._error: BaseException | None = None

    def __del__(self) -> None:
        if self._ended is not None:
            with suppress(RuntimeError):  # the interpreter ends
                # `threading.Thread` would take locks that the thread of the destructor may hold.
                start_new_thread(self._ended, (self._response(),))

    def end(self) -> None:
        """Tell of the end; a second time it does nothing."""
        ended, self._ended = self._ended, None
        response, self._error = self._response(), None  # its traceback leads back here
        if ended is not None:
            ended(response)

    def _response(self) -> Response:
        return Response(self._status, self._told, self._error, self._complete, self._sent)


class WSGIExchange(ResponseEnd):
    """Adds fields to one response, and tells how it ended: read to the end, closed before, or failed."""

    __slots__ = ("_body", "_close", "_headers", "_start_response")

    def __init__(
        self, start_response: StartResponse, headers: Sequence[Header], ended: Callable[[Response], None]
    ) -> None:
        super().__init__(ended)
        self._start_response, self._headers = start_response, texts(headers)

    def run(self, app: WSGIApp, environ: Environ) -> Self:
        """Call the application; return its body, which is to be iterated once and closed."""
        try:
            body = app(environ, self._start)
        except BaseException as error:
            self._error = error
            self.end()
            raise
        self._body: Iterator[bytes] = iter(body)
        self._close: Callable[[], object] | None = getattr(body, "close", None)
        return self

    def _start(self, status: str, fields: list[tuple[str, str]], *exc_info: object) -> Callable[[bytes], object]:
        write = self._start_response(status, [*fields, *self._headers], *exc_info)
        self._status = int(status[:3])
        self._told = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields]

        def counted(data: bytes) -> object:
            self._sent += len(data)
            return write(data)

        return counted

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            part = next(self._body)
        except BaseException as error:
            self._complete = isinstance(error, StopIteration)
            self._error = None if self._complete else error
            self.end()
            raise
        self._sent += len(part)
        return part

    def close(self) -> None:
        """End the response, as a server does whether it has sent all of it or not."""
        close, self._close = self._close, None
        try:
            if close is not None:
                close()
        finally:
            self.end()
