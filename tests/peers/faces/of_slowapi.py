"""The public face of slowapi over rules of ours: a plugin of pytest.

A decorator notes what it is given. The middleware makes rules of the routes of its application. `TestClient` has an
event loop for each request, so each has a limiter of its own, of one store in memory.
"""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import unquote

import slowapi
import slowapi.extension
import slowapi.middleware
from of_limits import DEADLINE, now  # type: ignore[import-not-found]  # beside this, where the suite runs
from slowapi.errors import RateLimitExceeded
from starlette.applications import Starlette
from starlette.requests import Request

from batchlimit import AsyncRateLimiter, Quota
from batchlimit.batching import FixedBatch
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.rules import Rule, Rules
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore

_NUMBERS = count()


@dataclass(eq=False)
class Asked:
    """One limit, as a decorator is given it."""

    quota: Any
    key_func: Callable[..., Any]
    scope: str
    is_shared: bool = False
    cost: Any = 1
    exempt_when: Callable[..., bool] | None = None
    override_defaults: bool = True
    error_message: Any = None
    methods: Iterable[str] | None = None

    def __post_init__(self) -> None:
        self.field, self.limit = f"value{next(_NUMBERS)}", self.quota

    def values(self, request: Request) -> Mapping[str, object]:
        """Return who asks, and what the quota is if a function says it; nothing, if the request is exempt from this."""
        if self.exempt_when is not None and _call(self.exempt_when, request):
            return {}
        key = _call(self.key_func, request)
        return {self.field: key, f"{self.field}_quota": self.quota_of(key)}

    def quota_of(self, key: Any) -> str:
        told = self.quota if isinstance(self.quota, str) else _call(self.quota, key)
        return str(Quota.parse(told))

    def rule(self, name: str, pattern: str, path: str, *, by_url: bool) -> Rule:
        """Return the rule of a route. Where a function says the quota, the key tells it."""
        fields = [f"{{{self.field}}}", f"{{{self.field}_quota}}"]
        fields += [part for part in path.split("/") if part[:1] == "{"] if by_url and not self.is_shared else []
        cost = self.cost if isinstance(self.cost, int) else lambda request: self.cost(Request(request.native))
        quota = self.quota if isinstance(self.quota, str) else "1/s"
        return Rule(name, quota, key=":".join([self.scope, *fields]), match=pattern, cost=cost)


def _call(function: Callable[..., Any], argument: Any) -> Any:
    return function(argument) if inspect.signature(function).parameters else function()


class Limiter:
    """Notes the limits of functions by their names."""

    def __init__(
        self,
        key_func: Callable[..., Any],
        default_limits: Iterable[Any] = (),
        *,
        headers_enabled: bool = False,
        enabled: bool = True,
        key_style: str = "url",
    ) -> None:
        self.key_func, self.enabled, self.by_url = key_func, enabled, key_style == "url"
        self.headers = "legacy" if headers_enabled else "off"
        self.defaults, self.logger = list(default_limits), logging.getLogger("slowapi")
        self.limits: dict[str, list[Asked]] = {}
        self.exempted: set[str] = set()
        self.store = MemoryStore(now)

    def limit(self, limit_value: Any, key_func: Any = None, **options: Any) -> Callable[..., Any]:
        def decorate(function: Any) -> Any:
            asked = Asked(limit_value, key_func or self.key_func, f"{function.__name__}{next(_NUMBERS)}", **options)
            self.limits.setdefault(function.__name__, []).append(asked)
            return function

        return decorate

    def shared_limit(self, limit_value: Any, scope: str, key_func: Any = None, **options: Any) -> Callable[..., Any]:
        asked = Asked(limit_value, key_func or self.key_func, scope, is_shared=True, **options)

        def decorate(function: Any) -> Any:
            self.limits.setdefault(function.__name__, []).append(asked)
            return function

        return decorate

    def exempt(self, function: Any) -> Any:
        self.exempted.add(function.__name__)
        return function

    def rules(self, app: Starlette) -> tuple[Rules, list[Asked]]:
        """Return the rules of an application as it is now, and what they were made of."""
        made, exempt = dict[str, tuple[Rule, Asked]](), list[str]()
        for route, name in _routes(app):
            pattern = f"{','.join(sorted(route.methods))} {route.path}"
            exempt += [pattern] if name in self.exempted else []
            for number, asked in enumerate(self._asked(name)):
                rule = asked.rule(f"{name}-{number}", pattern, route.path, by_url=self.by_url)
                made[rule.name] = rule, asked
        return Rules([rule for rule, _ in made.values()], exempt=exempt), [asked for _, asked in made.values()]

    def _asked(self, name: str) -> list[Asked]:
        mine = self.limits.get(name, [])
        if any(asked.override_defaults for asked in mine):
            return mine
        self.limits[name] = [*mine, *(Asked(each, self.key_func, f"default-{name}") for each in self.defaults)]
        return self.limits[name]

    def _inject_headers(self, response: Any, _: Any) -> Any:
        return response


def _routes(app: Starlette) -> Iterator[tuple[Any, str]]:
    for route in app.routes:
        if getattr(route, "methods", None) and route.path not in ("/docs", "/redoc", "/openapi.json"):  # type: ignore[attr-defined]
            yield route, route.endpoint.__name__  # type: ignore[attr-defined]


class Middleware:
    """Holds the limits of `app.state.limiter` against the requests of its application."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limiter: Limiter = scope["app"].state.limiter
        rules, asked = limiter.rules(scope["app"])
        by_field = {each.field: each for each in asked}

        def identify(scope: Any) -> dict[str, object]:
            return {name: value for each in asked for name, value in each.values(Request(scope)).items()}

        def quota_of(key: str) -> Quota:
            return Quota.parse(unquote(key.split(":")[2]).replace("%3B", ";"))

        async def rejected(scope: Any, refusal: Any) -> Any:
            field = next(rule for rule in rules if rule.name in refusal.rules).key.split("{")[1].split("}")[0]
            request = Request(scope)
            request.state.view_rate_limit = None
            handler: Any = scope["app"].exception_handlers[RateLimitExceeded]
            answer = handler(request, RateLimitExceeded(by_field[field]))  # type: ignore[arg-type]
            return await answer if inspect.isawaitable(answer) else answer

        if not rules:
            await self.app(scope, receive, send)
            return
        store = AsyncMemoryStore(limiter.store)
        async with AsyncRateLimiter(store, quota_of, clock=now, sizer=FixedBatch(1), deadline=DEADLINE) as limits:
            options: Any = {"headers": limiter.headers, "enabled": limiter.enabled, "on_rejected": rejected}
            middleware = RateLimitMiddleware(
                self.app, limits, rules, identify=identify, unidentified="admit", checks=False, **options
            )
            await middleware(scope, receive, send)


slowapi.Limiter = slowapi.extension.Limiter = Limiter  # type: ignore[misc, assignment]
slowapi.middleware.SlowAPIMiddleware = slowapi.middleware.SlowAPIASGIMiddleware = Middleware  # type: ignore[misc, assignment]
