"""Frameworks whose rules refuse behind a concurrency limit: the permit goes back, and the law gets no sample."""

from typing import Any

import pytest
from flask import Flask

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.integrations.asgi import ConcurrencyLimitMiddleware as ASGIMiddleware
from batchlimit.integrations.flask import Limits
from batchlimit.integrations.wsgi import ConcurrencyLimitMiddleware
from batchlimit.rules import Rule
from tests.integrations.asgi import call, http
from tests.integrations.stage import Recording
from tests.integrations.test_wsgi import Reply, request

ALL = Rule("all", "1/hour", key="all")
SEARCH = Rule("search", "2/hour", key="search:{user}", match=None)
ROUTE = Rule("route", "1/hour", key="route", match=None)


def told(limiter: Any) -> tuple[int, int, int, int]:
    """Under way, served, dropped, ignored."""
    found = limiter.statistics()
    return found.in_flight, found.succeeded, found.dropped, found.ignored


@pytest.mark.parametrize("rule", [ALL, ROUTE], ids=["matched", "asked for by the route"])
def test_flask(rule: Rule) -> None:
    app = Flask("test")
    limits = Limits("memory://", [rule], app)
    view = limits.limited("route")(lambda: "hello") if rule is ROUTE else lambda: "hello"
    app.add_url_rule("/", view_func=view, endpoint="hello")
    with ConcurrencyLimiter(Recording(1)) as limiter:
        behind = ConcurrencyLimitMiddleware(app.wsgi_app, limiter)
        assert [Reply(behind, request()).status for _ in range(2)] == [200, 429]
        assert told(limiter) == (0, 1, 0, 1)


def test_django() -> None:
    from tests.integrations.django_site import Site  # noqa: I001  it configures Django

    from django.core.handlers.asgi import ASGIHandler
    from django.core.handlers.wsgi import WSGIHandler

    site = Site(False, ALL)
    with ConcurrencyLimiter(Recording(1)) as limiter:
        behind = ConcurrencyLimitMiddleware(WSGIHandler(), limiter)
        assert [Reply(behind, request()).status for _ in range(2)] == [200, 429]
        assert told(limiter) == (0, 1, 0, 1)
    site.close()

    site, tasks = Site(True, ALL), AsyncConcurrencyLimiter(Recording(1))
    behind_tasks = ASGIMiddleware(ASGIHandler(), tasks)
    assert [site.twin._do(call, behind_tasks, http()).status for _ in range(2)] == [200, 429]
    assert told(tasks) == (0, 1, 0, 1)
    site.twin._do(tasks.close)
    site.close()


@pytest.mark.parametrize(("rule", "status"), [(ALL, 503), (SEARCH, 403)], ids=["no rule has the key", "no user"])
def test_a_throttle_of_rest_framework(rule: Rule, status: int) -> None:
    from tests.integrations.django_site import Site  # noqa: I001  it configures Django

    from django.core.handlers.wsgi import WSGIHandler

    site = Site(False, rule)
    with ConcurrencyLimiter(Recording(1)) as limiter:
        behind = ConcurrencyLimitMiddleware(WSGIHandler(), limiter)
        assert Reply(behind, request(path="/rest")).status == status
        assert told(limiter) == (0, 0, 0, 1)
    site.close()
