"""Limits: the Quart extension, which puts RateLimitMiddleware before an application."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from quart import Quart, Response, current_app, request

from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.asgi.exchange import Message
from batchlimit.integrations.asgi.route import charge_preflight, fields_to_write, reject
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.extension import BARE, NAME, Rejected, refusal_of_bare, source_for, statistics_of
from batchlimit.integrations.headers import texts
from batchlimit.integrations.quart.route import bare_endpoints, current_connection, limits_of, refuse
from batchlimit.integrations.source import AsyncLimiterSource
from batchlimit.rules import Rule, RuleFile, Rules
from batchlimit.rules.file import rules_of


class Limits:
    """Holds rules against every request and every handshake of a websocket, before Quart routes it.

    All rules that match are charged at once, or none of them. A request that a rule refuses is answered 429, with
    `RateLimit` fields, `Retry-After` and problem details; 503 while the store is away; 403 if a key cannot be made.
    Responses of admitted requests carry the fields too.

    A refusal of `limited` or `limit_blueprint` raises Rejected, an HTTP error: `@app.errorhandler(429)` answers it. A
    refusal of a rule that matches never reaches Quart. `on_rejected` answers both.

    When the application starts, each limit of its views and blueprints is looked up in the rules. One that no rule has
    ends the start with a RulesError.

    Args:
        limiter: the URL of a store, or a function that makes an AsyncRateLimiter. It is made when the application
            starts, closed when that has stopped, and made anew at the next start. Or an AsyncRateLimiter with the
            quotas `rules.quotas`, which its owner closes. Default None: the application's setting `BATCHLIMIT_URL`.
        rules: Rules, several Rule, or a RuleFile.
        app: the application; None: `init_app` tells later (default None).
        options: those of `RateLimitMiddleware`: identify (a function of the ASGI scope), headers, proxies, on_rejected,
            messages ...

    Raises:
        ValueError, TypeError: an argument cannot work; those that `app` or `init_app` needs, then.

    Example:
        >>> import asyncio
        >>> from quart import Quart
        >>> from batchlimit.integrations.quart import limited
        >>> app = Quart("shop")
        >>> limits = Limits("memory://", [Rule("search", "3/hour", key="search:all", match=None)], app)
        >>> @app.get("/search")
        ... @limited("search:all", cost=2)
        ... async def search():
        ...     return "found"
        >>> async def main():
        ...     async with app.test_app() as running:
        ...         client = running.test_client()
        ...         return [(await client.get("/search")).status_code for _ in range(2)]
        >>> asyncio.run(main())
        [200, 429]
    """

    def __init__(
        self,
        limiter: "AsyncLimiterSource | None",
        rules: RuleFile | Rules | Iterable[Rule],
        app: Quart | None = None,
        **options: Any,
    ) -> None:
        now = rules_of(rules)
        self._limiter, self._rules, self._options = limiter, rules if isinstance(rules, RuleFile) else now, options
        if app is not None:
            self.init_app(app)

    def __repr__(self) -> str:
        return f"<Limits {self._rules}>"

    def init_app(self, app: Quart) -> None:
        """Hold the rules against the requests of an application. One Limits may serve several applications.

        Args:
            app: the application.

        Raises:
            RuntimeError: the application has limits already.
            ValueError, TypeError: there is no URL, it has a typo, or an option cannot work.
        """
        limiter = source_for(app, self._limiter)
        middleware = RateLimitMiddleware(app.asgi_app, limiter, self._rules, **self._options)
        app.extensions[NAME], app.asgi_app = middleware, middleware  # type: ignore[assignment,method-assign]
        if self._options.get("on_rejected") is not None:
            app.register_error_handler(Rejected, _answer)
        middleware.charges_late = True
        _watch(app, middleware)

    def statistics(self, app: Quart | None = None) -> EnforcementStatistics:
        """Return what became of the requests so far, by rule.

        Args:
            app: the application (default None: the current one).

        Returns:
            The EnforcementStatistics of this process.
        """
        return statistics_of(app or current_app)


def _watch(app: Quart, middleware: RateLimitMiddleware) -> None:
    """Look for mistakes when the application starts, and at its requests: a server may not tell of a start."""
    bare = cache(lambda: bare_endpoints(app))
    enforcer = middleware.enforcer

    async def check() -> None:
        for limit in limits_of(app):
            enforcer.check(limit)
        if bare():
            raise RuntimeError(f"{BARE} ({', '.join(sorted(bare()))})")

    async def charge_preflight_of_view() -> None:
        rule = request.url_rule
        if rule is not None and not getattr(rule, "provide_automatic_options", False):
            scope: Any = request.scope
            if (refusal := await charge_preflight(scope)) is not None:
                await refuse(refusal, fields_to_write(refusal, scope))

    async def refuse_bare() -> None:
        if bare() and (endpoint := current_connection().endpoint) in bare():
            refusal = refusal_of_bare(endpoint, enforcer)
            await refuse(refusal, refusal.fields)

    app.before_serving(check)
    app.before_request(charge_preflight_of_view)
    app.before_request(refuse_bare)
    app.before_websocket(refuse_bare)


async def _answer(error: Rejected) -> Any:
    """Return what `on_rejected` answers, as a response of Quart."""
    scope = current_connection().scope
    if scope["type"] == "websocket":
        return error
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await reject(error.refusal, scope, receive, send)
    start, *parts = sent
    response = Response(b"".join(part.get("body", b"") for part in parts), start["status"])
    response.headers.clear()
    for name, value in texts(start["headers"]):
        response.headers.add(name, value)
    return response
