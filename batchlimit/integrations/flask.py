"""Rate limits for Flask: an extension that holds rules against every request, and a decorator for views."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, Unpack

from batchlimit.base.lazy import needed

with needed(__name__, "flask", "Flask"):
    from flask import Flask, current_app, request
    from flask import Request as FlaskRequest
    from flask import Response as FlaskResponse
    from werkzeug.exceptions import ServiceUnavailable

from batchlimit.integrations.address import Identify
from batchlimit.integrations.carried import give_back_permit
from batchlimit.integrations.enforcement import SHOWN, Outcome, Refusal, Response, RouteLimit, decisions, unprotected
from batchlimit.integrations.enforcement.plan import Plans, limit_for_route
from batchlimit.integrations.extension import NAME, Extension, Rejected, refusal_of_bare, rejected
from batchlimit.integrations.front import Front, WebOptions
from batchlimit.integrations.headers import texts
from batchlimit.integrations.source import LimiterSource, RulesSource
from batchlimit.integrations.wsgi.middleware import Environ, StartResponse, WSGIApp, WSGIExchange, fields_of, target_of
from batchlimit.rules import RuleFile
from batchlimit.rules.file import rules_of
from batchlimit.rules.rule import ChargeSetting, RuleCost

__all__ = ["Limits", "Rejected", "decisions"]

_PROXY_FIX = "werkzeug.proxy_fix.orig"
"""Where Werkzeug's ProxyFix keeps what it has replaced: it has read the forwarding fields itself."""
View = TypeVar("View", bound=Callable[..., Any])


class FlaskHold:
    """What the rules say of one request. It has the request itself: each look through Flask's proxy takes 0.5 us."""

    __slots__ = ("_front", "_outcome", "refusal", "request")
    request: FlaskRequest

    def __init__(self, front: Front) -> None:
        self._front = front
        self._outcome: Outcome | None = None
        self.refusal: Refusal | None = None

    def admit(self) -> Rejected | None:
        """Charge the request to the rules that match; return what refuses it. A second call does nothing."""
        if self._outcome is None:
            request, environ = self.request, self.request.environ
            fields = [each for each in fields_of(environ) if _PROXY_FIX not in environ or b"forwarded" not in each[0]]
            path, root = target_of(environ)
            peer, rule = environ.get("REMOTE_ADDR") or None, request.url_rule
            is_answered = rule is None or getattr(rule, "provide_automatic_options", False)
            self._outcome = self._front.admit(
                request.method, path, peer, fields, request, root=root, is_answered=is_answered
            )
            self.refusal = self._outcome.refusal
        return self._told(self._outcome, self._outcome.refusal)

    def ask(self, limit: RouteLimit) -> Rejected | None:
        """Charge the request to what its route asks for; return what refuses it."""
        if (refused := self.admit()) is not None:
            return refused
        assert self._outcome is not None
        self.refusal = self._front.enforcer.ask(limit, self._outcome, parameters=self.request.view_args or {})
        return self._told(self._outcome, self.refusal)

    def tell(self, response: FlaskResponse) -> FlaskResponse:
        """Add the fields to a response. One that the application made before the rules were asked may be replaced."""
        if self._outcome is None and (refused := self.admit()) is not None:
            if refused.refusal.key is None:  # nobody can say who asks, and the answer is there
                return response
            response = FlaskResponse(refused.get_body(), refused.refusal.status, refused.get_headers())
        assert self._outcome is not None
        for name, value in texts(self._outcome.headers if self.refusal is None else self.refusal.fields):
            response.headers[name] = value
        return response

    def settle(self, response: Response) -> None:
        """Settle what was charged, when the response has ended."""
        if self._outcome is not None:
            self._front.settle(self._outcome, response)

    def _told(self, outcome: Outcome, refusal: Refusal | None) -> Rejected | None:
        environ = self.request.environ
        environ[SHOWN] = outcome.shown
        if refusal is None:
            return None
        give_back_permit(environ)
        return rejected(refusal)


class Limits(Extension[Flask, LimiterSource]):
    """Holds rules against every request of a Flask application, before its view is called.

    It charges, refuses and answers as RateLimitMiddleware of `batchlimit.integrations.asgi` does, which says more. But
    a request that a rule refuses raises Rejected, an HTTP error.

    The rules are asked in a `before_request` function, in the order of such functions: register what sets `flask.g` for
    `identify` before `init_app`. If an earlier function answers the request, the rules are asked after it.

    A server may make the application before it forks: connections and tokens are those of each worker.

    Args:
        limiter: as there, but a RateLimiter: made at the first request, and closed when the process ends. None: the
            application's setting `BATCHLIMIT_URL` is the URL.
        rules: as there.
        app: the application; None: `init_app` tells later (default None).
        identify: a function of the `flask.Request`, as that of the scope there, but not asynchronous (default None).
        limit_preflight: whether CORS preflights that Flask answers by itself, as for Flask-CORS, are limited as well
            (default False). One that a view answers is always limited.
        headers, proxies, ipv6_prefix, unidentified, checks, enabled: as there, with the same defaults.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from flask import Flask
        >>> from batchlimit.rules import Rule
        >>> app = Flask("shop")
        >>> limits = Limits("memory://", [Rule("search", "2/hour", key="search:{ip}", match=None)], app)
        >>> @app.get("/search")
        ... @limits.limited("search:{ip}", cost=2)
        ... def search():
        ...     return "found"
        >>> client = app.test_client()
        >>> [client.get("/search").status_code for _ in range(2)]
        [200, 429]
    """

    _current = staticmethod(current_app._get_current_object)  # type: ignore[attr-defined]

    def __init__(
        self,
        limiter: LimiterSource | None,
        rules: RulesSource,
        app: Flask | None = None,
        *,
        identify: Identify[FlaskRequest] | None = None,
        **options: Unpack[WebOptions],
    ) -> None:
        now = rules_of(rules)
        self._routes = Plans(now)
        self._bare: set[Callable[..., object]] = set()
        self._asked: list[RouteLimit] = []
        # A file may get a rule with `charge`.
        self._charges = isinstance(rules, RuleFile) or any(rule.charge is not None for rule in now)
        super().__init__(limiter, rules if isinstance(rules, RuleFile) else now, app, identify=identify, **options)

    def limited(
        self, key: str, *, cost: RuleCost | None = None, charge: ChargeSetting = None
    ) -> Callable[[View], View]:
        """Return a decorator for a view, of any blueprint: requests are charged to the rule with this key, too.

        It stands below `@app.route`. Where it stands above, the view is answered 503 and the log says why.

        Args:
            key, cost, charge: what is asked for, as of RouteLimit of `batchlimit.integrations.enforcement`.

        Returns:
            The decorator.

        Raises:
            RulesError: no rule with `match=None` has this key, or the cost never fits.
        """
        limit = limit_for_route(key, cost, charge, "@limits.limited(...)")  # it makes a function of statuses
        rule, _ = self._routes.find(limit)
        self._asked.append(limit)
        self._charges = self._charges or rule.charge is not None

        def decorate(view: View) -> View:
            @wraps(view)
            def limited(*args: Any, **kwargs: Any) -> Any:
                if (refused := _hold().ask(limit)) is not None:
                    raise refused
                return current_app.ensure_sync(view)(*args, **kwargs)

            self._bare.add(view)
            return limited  # type: ignore[return-value]

        return decorate

    def _hold_rules(self, app: Flask, limiter: LimiterSource) -> None:
        front = app.extensions[NAME] = Front(limiter, self._rules, **self._options)
        front.enforcer.asking = self._asked
        app.before_request(self._admit)
        app.after_request(lambda response: _hold().tell(response))
        serve: WSGIApp = app.wsgi_app
        slot = _slot(front)

        def wsgi_app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
            hold = environ[slot] = FlaskHold(front)
            try:
                if not self._charges:
                    return serve(environ, start_response)
                return WSGIExchange(start_response, (), hold.settle).run(serve, environ)
            finally:
                environ.pop(slot, None)  # it leads back to the environ: the garbage collector would have to find that

        app.wsgi_app = wsgi_app  # type: ignore[method-assign]

    def _admit(self) -> None:
        hold = _hold()
        if (refused := hold.admit()) is not None:
            raise refused
        endpoint = hold.request.endpoint if self._bare else None
        if endpoint is not None and current_app.view_functions.get(endpoint) in self._bare:
            hold.refusal = refusal_of_bare(endpoint, current_app.extensions[NAME].enforcer)
            raise rejected(hold.refusal)


def _hold() -> FlaskHold:
    """Return what holds the rules against the current request."""
    asking: FlaskRequest = request._get_current_object()  # type: ignore[attr-defined]
    front: Front | None = current_app.extensions.get(NAME)
    if front is None:
        unprotected(str(asking.endpoint), "the application has no limits: call init_app")
        raise ServiceUnavailable
    slot = _slot(front)
    hold: FlaskHold | None = asking.environ.get(slot)
    if hold is None:  # the view is called without the application, as in a test
        hold = asking.environ[slot] = FlaskHold(front)
    hold.request = asking
    return hold


def _slot(front: Front) -> str:
    return f"batchlimit.flask.{id(front):x}"
