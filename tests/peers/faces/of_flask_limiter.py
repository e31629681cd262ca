"""The public face of flask-limiter over rules of ours: a plugin of pytest.

Its own code reads its settings and notes what decorators ask for. What a request is charged, how it is refused and what
fields its response has is ours: rules of the routes of the application, held by `Limits`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import count
from os import environ
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import flask
import flask_limiter
import flask_limiter._extension as theirs
from flask_limiter.constants import ExemptionScope
from flask_limiter.errors import RateLimitExceeded
from flask_limiter.util import get_qualified_name
from of_limits import DEADLINE, now  # type: ignore[import-not-found]  # beside this, where the suite runs
from redis import Redis
from werkzeug.wsgi import ClosingIterator

from batchlimit import Quota, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.enforcement import Refusal
from batchlimit.integrations.extension import rejected
from batchlimit.integrations.flask import Limits
from batchlimit.integrations.headers import Fields
from batchlimit.rules import Rule, Rules
from batchlimit.stores.memory import MemoryStore
from batchlimit.stores.redis import RedisStore

_NUMBERS = count()
_REFUSED = type(rejected(Refusal(429, (), None, None, [], b"")))


class Asked(NamedTuple):
    """One limit of one route: as it was given, the scope of its bucket, the methods, and the value of its key."""

    limit: Any
    scope: str
    methods: frozenset[str]
    field: str

    def values(self) -> dict[str, str]:
        """Return who asks, and what the quota is; nothing, if the request is exempt from this."""
        limit, request = self.limit, flask.request
        quota = limit.limit_provider() if callable(limit.limit_provider) else limit.limit_provider
        who = None if limit.exempt_when and limit.exempt_when() else limit.limit_by()
        if not quota or not who:
            return {}
        more = limit.scope(request.endpoint) if callable(limit.scope) else limit.scope
        where = ["" if limit.shared else self.scope, str(more or ""), request.method if limit.per_method else ""]
        return {self.field: "|".join([*where, who]), f"{self.field}_quota": str(Quota.parse(quota))}

    def rule(self, name: str, path: str) -> Rule:
        cost, deduct = self.limit.cost or 1, self.limit.deduct_when
        return Rule(
            name,
            "1000000/s",
            key=f"limit:{{{self.field}}}:{{{self.field}_quota}}",
            match=f"{','.join(sorted(self.methods))} {path}",
            cost=(lambda _: cost()) if callable(cost) else cost,
            charge=None if deduct is None else lambda response: deduct(flask.Response(status=response.status)),
        )


def quota_of(key: str) -> Quota:
    return Quota.parse(unquote(key.rsplit(":", 1)[1]))


def _path(written: str) -> Iterator[str]:
    for segment in written.split("/"):
        if segment.startswith("<path:"):
            yield "*"
        else:
            yield f"{{{segment[1:-1].split(':')[-1]}}}" if segment.startswith("<") else segment


class Limiter(theirs.Limiter):
    """Holds rules against the requests of its application. They are made anew at each, for routes and limits come."""

    def init_app(self, app: flask.Flask) -> None:
        super().init_app(app)
        if not self.enabled:
            return
        for hooks in (app.before_request_funcs, app.after_request_funcs, app.teardown_request_funcs):
            cast(Any, hooks)[None].pop()
        app.after_request(self._renamed)
        app.register_error_handler(_REFUSED, lambda error: self._exceeded(app, error))
        self.bucket, inner = self._opened(), app.wsgi_app

        def serve(environ: Any, start_response: Any) -> Any:
            hooks: list[Any] = [app.before_request_funcs[None], app.after_request_funcs[None]]
            were = [list(each) for each in hooks]
            app.wsgi_app, app._got_first_request = inner, False  # type: ignore[method-assign]
            try:
                self._hold(app)
                with closing(ClosingIterator(app.wsgi_app(environ, start_response))) as body:
                    return list(body)  # most tests do not read it
            finally:
                app.extensions.pop("batchlimit", None)
                app.wsgi_app = serve  # type: ignore[method-assign]
                for each, before in zip(hooks, were, strict=True):
                    each[:] = before

        app.wsgi_app = serve  # type: ignore[method-assign]

    def reset(self) -> None:
        self.bucket = self._opened()

    def _opened(self) -> RateLimiter:
        options: Any = {"clock": now, "sizer": FixedBatch(1), "deadline": DEADLINE}
        if "Memory" in type(self._storage).__name__:
            return RateLimiter(MemoryStore(now), quota_of, **options)
        prefix = f"{self._key_prefix or 'limits'}-{id(self)}"
        return RateLimiter(RedisStore(Redis.from_url(environ["PEERS_REDIS"]), prefix=prefix), quota_of, **options)

    def _hold(self, app: flask.Flask) -> None:
        self.asked, made, exempt = dict[str, Asked](), list[Rule](), list[Any](self._filters())
        by_endpoint = dict[str, list[Asked]]()
        for route in app.url_map.iter_rules():
            path = "/".join(_path(route.rule))
            if route.endpoint.split(".")[-1] == "static":
                exempt.append(path)
                continue
            for asked in self._of(app, route):
                made.append(asked.rule(f"limit-{len(made)}", path))
                self.asked[made[-1].name] = asked
                by_endpoint.setdefault(route.endpoint, []).append(asked)

        def identify(request: flask.Request) -> dict[str, str]:
            found = by_endpoint.get(request.endpoint or "", [])
            return {name: value for asked in found for name, value in asked.values().items()}

        if made:
            headers = Fields("legacy" if self._headers_enabled else "off", chance=lambda: 0.0)
            rules = Rules(made, exempt=exempt)
            Limits(self.bucket, rules, app, identify=identify, headers=headers, unidentified="admit", checks=False)

    def _filters(self) -> Iterable[Callable[[Any], bool]]:
        return [lambda _, function=each: bool(function()) for each in self._request_filters]  # type: ignore[misc]

    def _of(self, app: flask.Flask, route: Any) -> Iterator[Asked]:
        """Yield the limits of a route: those of the application, its own, and else the default ones."""
        manager, endpoint = self.limit_manager, route.endpoint
        name, methods = get_qualified_name(app.view_functions[endpoint]), frozenset(route.methods)
        before = endpoint.rpartition(".")[0]
        blueprint = before if before in app.blueprints else None
        flags = manager.exemption_scope(app, endpoint, blueprint)
        mine = [] if manager._route_exemptions.get(name) else list(manager._decorated_limits.get(name, ()))
        if blueprint and not any(limit.override_defaults for limit in mine):
            mine += self._of_blueprint(blueprint)
        given = [] if flags & ExemptionScope.APPLICATION else manager._application_limits
        yield from (self._one(limit, endpoint, methods) for limit in [*given, *mine])
        replaced = [limit for limit in mine if limit.override_defaults]
        free = methods.difference(*(_methods(limit, methods) for limit in replaced))
        if free and not flags & ExemptionScope.DEFAULT:
            yield from (self._one(limit, endpoint, free) for limit in manager._default_limits)

    def _of_blueprint(self, blueprint: str) -> list[Any]:
        given, flags, outer = self.limit_manager._blueprint_limits, self._flags, blueprint.split(".")
        own = list(given.get(outer[-1], ()))
        if (own and all(limit.override_defaults for limit in own)) or flags(outer[-1]) & ExemptionScope.ANCESTORS:
            return own
        heirs = [name for name in outer if not flags(name) & ExemptionScope.DESCENDENTS]
        return [limit for name in heirs for limit in given.get(name, ())]

    def _flags(self, blueprint: str) -> ExemptionScope:
        return self.limit_manager._blueprint_exemptions.get(blueprint, ExemptionScope.NONE)

    def _one(self, limit: Any, endpoint: str, methods: frozenset[str]) -> Asked:
        return Asked(limit, endpoint, methods & _methods(limit, methods), f"value{next(_NUMBERS)}")

    def _check_request_limit(self, callable_name: str | None = None, in_middleware: bool = True) -> None:
        """Charge a function that a view calls, or a block of it; of a view itself its rules are asked before."""
        view = flask.current_app.view_functions.get(flask.request.endpoint or "")
        if view is not None and get_qualified_name(view) == callable_name:
            return
        for limit in self.limit_manager._decorated_limits.get(callable_name or "", ()):
            values = list(Asked(limit, str(callable_name), frozenset(), "value").values().values())
            key = ":".join(["function", *(each.replace(":", "%3A") for each in values)])
            if values and not self.bucket.try_acquire(key):
                raise RateLimitExceeded(next(iter(limit)))

    def _exceeded(self, app: flask.Flask, error: Any) -> Any:
        """Answer as theirs does: by `on_breach`, a handler of the application, or the message."""
        asked = self.asked[error.refusal.rules[0]]
        limit, response = next(iter(asked.limit)), None
        told = theirs.RequestLimit(self, limit.limit, [limit.key_func(), asked.scope], True, limit.shared)
        for function in dict.fromkeys([self._on_breach, limit.on_breach]):
            try:
                answer = function(told) if function else None
            except Exception as failure:
                if not self._swallow_errors:
                    raise
                self.logger.exception("on_breach callback failed with error %s", failure)
            else:
                response = answer if isinstance(answer, flask.Response) else response
        return app.handle_http_exception(RateLimitExceeded(limit, response=response))

    def _renamed(self, response: flask.Response) -> flask.Response:
        for name, own in self._header_mapping.items():
            if own != name.value and name.value in response.headers:
                response.headers[own] = response.headers.pop(name.value)
        return response


def _methods(limit: Any, methods: frozenset[str]) -> frozenset[str]:
    return frozenset(each.upper() for each in limit.methods) if limit.methods else methods


flask_limiter.Limiter = theirs.Limiter = Limiter  # type: ignore[misc]
