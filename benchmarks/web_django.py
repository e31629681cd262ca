"""A Django project behind each limiter: one set of settings, a path for each, and middlewares where it needs them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.test.utils import override_settings
from django.urls import path

from batchlimit import RateLimiter
from batchlimit.integrations.django import limited
from batchlimit.rules import Rule, Rules
from benchmarks.web_rules import ASKED, PLENTY, of_environ

App = Callable[[Any, Any], Iterable[bytes]]
_OURS = "batchlimit.integrations.django.RateLimitMiddleware"
_QUOTA = f"{PLENTY}/s burst {PLENTY}"
_RULES = [
    Rule("one", _QUOTA, key="one:{ip}", match="/one/*"),
    Rule("four", _QUOTA, key="four:{ip}", match="/four/*"),
    Rule("user", _QUOTA, key="user:{user}", match="/four/*"),
    Rule("route", _QUOTA, key="route:{user}", match="GET /four/items/{id}"),
    Rule("all", _QUOTA, key="all", match="/four/*"),
    *ASKED,
]


def item(request: Any, id: int) -> HttpResponse:  # noqa: A002
    """Answer at once."""
    return HttpResponse("hello")


def _ratelimited(limits: int) -> Any:
    """Return the view with so many limits of django-ratelimit."""
    ratelimit = import_module("django_ratelimit.decorators").ratelimit

    view: Any = item
    for number in range(limits):
        view = ratelimit(key="ip", rate=f"{PLENTY}/s", group=f"limit-{number}")(view)
    return view


def _views() -> dict[str, tuple[str, Any, list[str]]]:
    """Return the first segment of the path, the view and the middlewares of each."""
    return {
        "no limiter": ("alone", item, []),
        "batchlimit, 1 rule": ("one", item, [_OURS]),
        "batchlimit, 4 rules": ("four", item, [_OURS]),
        "batchlimit, 1 rule of a decorator": ("asked", limited(ASKED[0].key)(item), [_OURS]),
        "django-ratelimit, 1 limit": ("theirs", _ratelimited(1), []),
        "django-ratelimit, 4 limits": ("theirs-four", _ratelimited(4), []),
    }


def _served(segment: str, middlewares: list[str]) -> App:
    """Return an application that is asked for a path of its own."""
    with override_settings(MIDDLEWARE=middlewares):
        handler: Any = WSGIHandler()

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        answer: Iterable[bytes] = handler({**environ, "PATH_INFO": f"/{segment}/items/7"}, start_response)
        return answer

    return app


@contextmanager
def opened(url: str) -> Iterator[dict[str, App]]:
    """Return the project behind each; settings are in force until the end."""
    if not settings.configured:
        settings.configure(SECRET_KEY="s", ALLOWED_HOSTS=["*"], INSTALLED_APPS=[])
        django.setup()
    views, cache = _views(), {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}
    with closing(RateLimiter.from_url(url, Rules(_RULES).quotas, deadline=5.0)) as limiter:
        mine = {"LIMITER": lambda: limiter, "RULES": _RULES, "IDENTIFY": of_environ, "CHECKS": False}
        routes = tuple(path(f"{segment}/items/<int:id>", view) for segment, view, _ in views.values())
        with override_settings(BATCHLIMIT=mine, ROOT_URLCONF=routes, CACHES={"default": cache}):
            yield {name: _served(segment, middlewares) for name, (segment, _, middlewares) in views.items()}
