"""A throttle of Django REST framework, under WSGI and under ASGI, in a time that the test sets."""

from typing import Any

import pytest

from batchlimit.rules import Rule
from tests.integrations.django_site import Site
from tests.integrations.structured import read_limits

SEARCH = Rule("search", "5/hour", key="search:{user}", match=None)


@pytest.fixture(params=[False, True], ids=["WSGI", "ASGI"])
def asynchronous(request: pytest.FixtureRequest, without_refresher: None) -> Any:
    return request.param


def _close(site: Site, replies: Any) -> Any:
    site.close()
    return replies


def test_a_throttle_charges_its_rule_and_a_refusal_says_when(asynchronous: bool) -> None:
    site = Site(asynchronous, Rule("all", "100/hour", key="all"), SEARCH)
    replies = _close(site, [site.call("/rest") for _ in range(3)])
    assert [each.status_code for each in replies] == [200, 200, 429]
    limits = read_limits({name.lower().encode(): value.encode() for name, value in replies[0].headers.items()})
    assert {name: each.r for name, each in limits.items()} == {"all": 99, "search": 3}
    assert 720 <= int(replies[2].headers["retry-after"]) <= 1.1 * 721
    assert replies[2].headers["cache-control"] == "no-store"


def test_a_throttle_without_a_rule_or_the_middleware_is_a_503_and_without_a_user_a_403(asynchronous: bool) -> None:
    site = Site(asynchronous, Rule("all", "100/hour", key="all"))
    assert _close(site, site.call("/rest")).status_code == 503
    site = Site(asynchronous, SEARCH, middleware=())
    assert _close(site, site.call("/rest")).status_code == 503
    site = Site(asynchronous, SEARCH)
    assert _close(site, site.call("/rest", user=None)).status_code == 403
