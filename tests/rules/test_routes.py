"""Rules that match no request by themselves: a route asks for one by its key."""

import pytest

from batchlimit.rules import Request, Rule, Rules, RulesError

SEARCH = Rule("search", "10/s", key="search:{user}", match=None)
API = Rule("api", "100/s", key="user:{user}", match="/api/*")


def test_a_rule_without_match_applies_to_no_request_by_itself() -> None:
    rules = Rules([SEARCH, API])
    assert SEARCH.match == ()
    assert rules.matching("GET", "/search") == ()
    applied, unmade = rules.applicable(Request("GET", "/api/search", {"user": "ann"}))
    assert ([each.rule.name for each in applied], unmade) == (["api"], ())


def test_a_route_asks_for_a_rule_by_its_key() -> None:
    assert Rules([API, SEARCH]).asked("search:{user}") is SEARCH


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("serch:{user}", "no rule with match=None has the key 'serch:{user}': did you mean 'search:{user}'?"),
        ("x", "no rule with match=None has the key 'x': there are 'search:{user}'"),
        ("user:{user}", "rule 'api': it matches requests by itself, and a route asks for its key 'user:{user}'"),
    ],
)
def test_a_key_that_no_rule_has_for_routes_is_an_error(key: str, says: str) -> None:
    with pytest.raises(RulesError) as refused:
        Rules([SEARCH, API]).asked(key)
    assert str(refused.value).startswith(says)


def test_two_rules_for_routes_have_two_keys() -> None:
    with pytest.raises(RulesError, match=r"rule 'other': routes ask for .* and rule 'search' has it too"):
        Rules([SEARCH, Rule("other", "10/s", key="search:{user}", match=None, cost=2)])


def test_a_rule_for_routes_shares_the_bucket_of_one_that_matches() -> None:
    rules = Rules([API, Rule("heavy", "100/s", key="user:{user}", match=None, cost=10)])
    assert rules.asked("user:{user}").name == "heavy"
    assert list(rules.quotas) == ["user:*"]


def test_fields_of_a_rule_for_routes_may_come_from_the_route() -> None:
    Rules([SEARCH], identities={"ip"})


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("toml", 'rules = [{name = "search", quota = "10/s", key = "search:{user}", match = false}]'),
        ("yaml", 'rules: [{name: search, quota: 10/s, key: "search:{user}", match: null}]'),
        ("yaml", 'rules: [{name: search, quota: 10/s, key: "search:{user}", match: false}]'),
    ],
)
def test_a_file_says_it_too(format: str, text: str) -> None:  # noqa: A002
    assert list(Rules.loads(text, format=format)) == [SEARCH]  # type: ignore[arg-type]


def test_it_is_explained() -> None:
    (verdict,) = Rules([SEARCH]).explain(Request("GET", "/search")).verdicts
    assert verdict[1:] == ("no match", None, "routes ask for it by its key")
