"""RateLimitMiddleware: rules before a WSGI application."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Unpack

from batchlimit.integrations.carried import behind, give_back_permit
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import Refusal, show
from batchlimit.integrations.front import Front, WebOptions, wanted
from batchlimit.integrations.headers import Header
from batchlimit.integrations.identity import Identity
from batchlimit.integrations.source import LimiterSource
from batchlimit.integrations.wsgi.exchange import Environ, StartResponse, WSGIApp, WSGIExchange, answer, with_headers
from batchlimit.rules import Rule, RuleFile, Rules

if TYPE_CHECKING:
    from batchlimit.integrations.permits import ConcurrencyLimit

OnRejected = Callable[[Environ, Refusal], WSGIApp]
_FIELDS = [(name.encode(), f"HTTP_{name.upper().replace('-', '_')}") for name in wanted]


class RateLimitMiddleware:
    """Holds rules against every request of a WSGI application, before the application is called.

    All rules that match are charged at once, or none of them. A request that a rule refuses is answered 429, with
    `RateLimit` fields, `Retry-After` and problem details; 503 while the store is away; 403 if a key cannot be made.
    Nothing that goes wrong here becomes a 500. Responses of admitted requests carry the fields too.

    A server may make the application before it forks: connections and tokens are those of each worker.

    Args:
        app: the application.
        limiter: the URL of a store, or a function that makes a RateLimiter at the first request. Either is closed when
            the process ends. Or a RateLimiter with the quotas `rules.quotas`, which its owner closes.
        rules: Rules, several Rule, or a RuleFile.
        identify: a function of the environ. It returns values for the keys, such as {"user": "ann"}, or None (default
            None: keys have `ip` alone). If it raises, the rules that need more than `ip` have no key.
        on_rejected: a function of the environ and the Refusal that returns the WSGI application which answers (default
            None: problem details). The fields of the refusal are added to its answer.
        concurrency: a ConcurrencyLimit: a request needs a permit of it first, and is answered 503 without one (default
            None: no permit).
        headers, proxies, ipv6_prefix, unidentified, checks, enabled: as of RateLimitMiddleware of
            `batchlimit.integrations.asgi`, with the same defaults.

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
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[[Environ], Identity | None] | None = None,
        on_rejected: OnRejected | None = None,
        concurrency: "ConcurrencyLimit | None" = None,
        **options: Unpack[WebOptions],
    ) -> None:
        self.app, self._on_rejected = app, on_rejected
        needed = concurrency if options.get("enabled", True) else None
        self._permits = behind(needed, __package__, self._limited)
        self.front = Front(limiter, rules, identify=identify, **options)

    def __repr__(self) -> str:
        return f"<RateLimitMiddleware {self.front.enforcer.rules}>"

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request, as any WSGI application."""
        serve = self._permits or self._limited
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
                    app: WSGIApp | None = self._on_rejected(environ, outcome.refusal)
                except Exception as error:  # noqa: BLE001  told in the log
                    self.front.enforcer.counters.unanswered(outcome.refusal.rules, error)
                    app = None
                if app is not None:
                    return app(environ, with_headers(start_response, outcome.refusal.fields))
            return answer(outcome.refusal, environ, start_response)
        show(environ, outcome)
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
