"""A Django project with limits, under WSGI and under ASGI, called by Django's test clients in a time that tests set."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import Client, override_settings

from batchlimit.integrations.django.configuration import asked, configuration
from batchlimit.integrations.django.middleware import RateLimitMiddleware
from batchlimit.rules import Rule
from batchlimit.rules.file import rules_of
from tests.integrations.django_site import MIDDLEWARE, Site
from tests.integrations.structured import read_limits
from tests.sync.stage import until

PEER = "127.0.0.1"
SEARCH = Rule("search", "5/hour", key="search:{user}", match=None)
LOGIN = Rule("login", "5/hour", key="login:{ip}", match="/login/*", charge=[401])
Make = Callable[..., Site]


@pytest.fixture(params=[False, True], ids=["WSGI", "ASGI"])
def site(request: pytest.FixtureRequest, without_refresher: None) -> Iterator[Make]:
    made: list[Site] = []

    def make(*rules: Rule, **options: Any) -> Site:
        made.append(Site(request.param, *rules, **options))
        return made[-1]

    yield make
    for each in reversed(made):
        each.close()


_SEARCHES = ["search", "search-async", "search-view", "search-async-view", "search-method", "inner/search", "rest"]


@pytest.mark.parametrize("path", _SEARCHES)
def test_a_view_of_any_kind_is_charged_to_what_it_asks_for(site: Make, path: str) -> None:
    service = site(Rule("all", "100/hour", key="all"), SEARCH)
    replies = [service.call(f"/{path}") for _ in range(3)]
    assert [each.status_code for each in replies] == [200, 200, 429]
    limits = read_limits(replies[0].headers)
    assert {name: (each.q, each.r) for name, each in limits.items()} == {"all": (100, 99), "search": (5, 3)}
    assert list(read_limits(replies[2].headers)) == ["search"]
    assert replies[2].headers["cache-control"] == "no-store"
    assert 720 <= int(replies[2].headers["retry-after"]) <= 1.1 * 721
    if path != "rest":  # whose framework answers by itself
        assert json.loads(replies[2].content)["violated-policies"] == ["search"]
    assert service.twin.left("search:ann") == 1


@pytest.mark.parametrize("path", _SEARCHES)
def test_a_view_without_the_middleware_is_a_503_and_logged(site: Make, path: str, caplog: Any) -> None:
    assert site(SEARCH, middleware=()).call(f"/{path}").status_code == 503
    assert "not in MIDDLEWARE" in caplog.text


class Replacing:
    """Middleware that puts another response in the place of the one that it gets."""

    sync_capable, async_capable = True, False

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: Any) -> Any:
        self._get_response(request)
        return HttpResponse("another")


def test_a_response_that_other_middleware_replaces_is_settled(site: Make) -> None:
    replacing = f"{__name__}.Replacing"
    service = site(LOGIN, middleware=(replacing, MIDDLEWARE))
    assert service.call("/login/200").content == b"another"
    until(lambda: service.comes_to(f"login:{PEER}", 5))  # a thread of its own settles what nobody keeps


def test_under_wsgi_a_request_is_settled_at_once_also_where_a_loop_runs(without_refresher: None) -> None:
    """Such as a test client in an asynchronous test: its loop has to do nothing, and may be over."""

    async def left() -> int:
        service.call("/login/200")
        return service.twin.left(f"login:{PEER}")

    with closing(Site(False, LOGIN)) as service:
        assert asyncio.run(left()) == 5


ALL = [Rule("all", "1/hour", key="all")]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (None, "BATCHLIMIT is not set: nothing is limited"),
        ({"URL": "memory://"}, "has no RULES"),
        ({"RULES": ALL}, "has a URL, or functions"),
        ({"URL": "memory://", "RULES": ALL, "LIMITER": len}, "and not both"),
        ({"URL": 5, "RULES": ALL}, "the URL of a store, not int"),
        ({"URL": "memory://", "RULES": ALL, "IDENTFY": len}, "has no 'IDENTFY': did you mean IDENTIFY?"),
        ({"URL": "memory://", "RULES": ALL, "IDENTIFY": "no.where"}, "No module named 'no'"),
        ({"URL": "memory://", "RULES": ALL, "IDENTIFY": 5}, "IDENTIFY is a function"),
        ({"URL": "memory://", "RULES": ALL, "HEADERS": "new"}, "headers are one of"),
        ({"URL": "memory://", "RULES": ALL, "PROXIES": ["nonsense"]}, "nonsense"),
        ({"URL": "memory://", "RULES": [*ALL, *ALL]}, "all"),
        ({"URL": "memory://", "RULES": "/no/such/rules.toml"}, "No such file"),
    ],
)
def test_a_setting_that_cannot_work_is_an_error_of_the_check_and_of_the_start(setting: Any, message: str) -> None:
    with override_settings(BATCHLIMIT=setting):
        (error,) = _errors()
        assert message in error.msg
        assert error.id == "batchlimit.E001"
        with pytest.raises(ImproperlyConfigured):
            RateLimitMiddleware(lambda request: HttpResponse())


@pytest.mark.parametrize("setting", [{"UNIDENTIFIED": "perhaps"}, {"URL": "rediss//nowhere"}])
def test_what_the_limiter_does_not_take_is_an_error_of_the_start(setting: Any) -> None:
    mine = {"URL": "memory://", "RULES": ALL, **setting}
    with override_settings(BATCHLIMIT=mine), pytest.raises(ImproperlyConfigured, match="BATCHLIMIT: "):
        RateLimitMiddleware(lambda request: HttpResponse())


def test_the_check_names_views_whose_key_no_rule_has_and_a_missing_middleware() -> None:
    with override_settings(MIDDLEWARE=[]):
        errors = _errors()
    assert errors[0].id == "batchlimit.E002"
    assert {each.id for each in errors[1:]} == {"batchlimit.E003"}
    assert any("'item:{user}:{number}'" in each.msg for each in errors)


def test_a_project_that_can_work_passes_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {SEARCH.key, "item:{user}:{number}"}  # and none of other sites, whose tests run in this process too
    monkeypatch.setattr("batchlimit.integrations.django.apps.asked", [each for each in asked if each.key in mine])
    item = Rule("item", "1/hour", key="item:{user}:{number}", match=None)
    with override_settings(BATCHLIMIT={"URL": "memory://", "RULES": [*ALL, SEARCH, item]}):
        assert _errors() == []


def test_rules_come_from_a_file_with_functions_by_name(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('rules = [{name = "all", quota = "1/hour", key = "all", cost = "size"}]')
    mine = {"URL": "memory://", "RULES": file, "FUNCTIONS": {"size": "tests.integrations.test_django.size"}}
    with override_settings(BATCHLIMIT=mine):
        assert [rule.cost for rule in rules_of(configuration()["RULES"])] == [size]
        assert [Client().get("/").status_code for _ in range(2)] == [200, 429]


def size(request: Any) -> int:
    return 1


def _errors() -> list[Any]:
    return [each for each in run_checks() if str(each.id).startswith("batchlimit")]
