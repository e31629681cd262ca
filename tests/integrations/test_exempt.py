"""Requests that no rule is for, and limits that are switched off: alike in every framework."""

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchlimit.integrations.front import Front
from batchlimit.rules import Request, Rule, RuleFile, Rules, RulesError
from tests.integrations.everywhere import EVERYWHERE, FACES
from tests.integrations.test_arguments import asgi

RULES = [Rule("all", "1/hour", key="all:{user}"), Rule("search", "1/hour", key="search:{user}", match=None)]


def is_staff(request: Request) -> bool:
    return request.identity.get("user") == "root"


@EVERYWHERE
def test_a_path_a_caller_and_what_routes_ask_for_is_exempt_in_every_framework(serving: Callable[..., Any]) -> None:
    with serving(Rules(RULES, exempt=["GET /hello", is_staff])) as served:
        assert served.statuses("/hello", 3) == [200] * 3
        assert served.statuses("/search", 3, "root") == [200] * 3
        assert "ratelimit" not in served.get("/hello").fields
        assert served.statuses("/search", 2, "bob") == [200, 429]
        assert served.statistics().exempt == 7
        assert served.statistics().requests == 9


@EVERYWHERE
def test_what_is_switched_off_admits_all_and_asks_nothing(
    serving: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(RULES, enabled=False) as served:
        assert served.statuses("/hello", 3) + served.statuses("/search", 3) == [200] * 6
        assert served.statistics().exempt == 6
        assert served.statistics().findings == {"disabled": ("",)}
    assert "enabled=False: no request is limited" in caplog.text


def test_what_is_switched_off_makes_no_limiter_and_asks_no_function() -> None:
    def never(*_: object) -> Any:
        pytest.fail("it was asked")

    rules = Rules([Rule("all", "1/hour", key="all", cost=never)], exempt=never)
    front = Front(never, rules, identify=never, enabled=False)
    assert [front.admit("GET", "/", "192.0.2.1", []).refusal for _ in range(3)] == [None] * 3
    assert front.statistics().rules["all"].matched == 0


@pytest.mark.parametrize("name", ["enabled", "limit_preflight"])
def test_a_switch_is_a_bool_and_no_text_of_an_environment(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is True or False, not '0'"):
        asgi("memory://", RULES, **{name: "0"})


def test_an_identify_that_no_request_could_call_is_an_error_at_the_start() -> None:
    with pytest.raises(TypeError, match="identify is a function that returns values for keys, not "):
        asgi("memory://", RULES, identify={"user": "ann"})


def test_exempt_belongs_to_the_rules() -> None:
    with pytest.raises(TypeError, match=r"no option 'exempt': write Rules\(\[...\], exempt=...\)"):
        asgi("memory://", RULES, exempt=["/hello"])


def test_a_function_that_raises_or_says_nonsense_exempts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def raises(request: Request) -> bool:
        raise KeyError("user")

    nonsense: Any = lambda request: "yes"  # noqa: E731
    for function in (raises, nonsense):
        caplog.clear()
        with caplog.at_level(logging.WARNING), FACES["wsgi"](Rules(RULES, exempt=function)) as served:
            assert served.statuses("/hello", 2) == [200, 429]
        assert "a request is not exempt, for `exempt` failed" in caplog.text


def test_a_file_says_what_is_exempt_and_a_change_is_obeyed() -> None:
    text = 'exempt = ["/hello", "is_staff"]\n[[rules]]\nname = "all"\nquota = "1/hour"\nkey = "all:{user}"\n'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rules.toml")
        path.write_text(text)
        file = RuleFile(path, functions={"is_staff": is_staff})
        with FACES["wsgi"](file) as served:
            assert served.statuses("/hello", 3) == [200] * 3
            assert served.statuses("/other", 3, "root") == [200] * 3
            path.write_text(text.replace('"/hello", ', ""))
            assert file.look()
            assert served.statuses("/hello", 2) == [200, 429]
            assert served.statuses("/hello", 2, "root") == [200] * 2


def test_a_file_tells_where_an_exemption_is_wrong() -> None:
    text = 'exempt = ["/hello", "hello"]\nrules = [{name = "all", quota = "1/hour", key = "all"}]'
    with pytest.raises(RulesError, match=r"<text>:1:21: exempt names the function 'hello'; functions= has: none"):
        Rules.loads(text, format="toml")
    with pytest.raises(RulesError, match=r"<text>:1:11: '/a b c': expected methods and one path"):
        Rules.loads(text.replace("/hello", "/a b c"), format="toml")
    with pytest.raises(RulesError, match=r"<text>:1:10: exempt is a list of patterns, not '/x'"):
        Rules.loads(text.replace('["/hello", "hello"]', '"/x"'), format="toml")
