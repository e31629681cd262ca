"""A rule replaces others where it applies: a route's own limit in place of the default one."""

import pickle
from typing import Any

import pytest

from batchlimit.rules import Request, Rule, Rules, RulesError

ALL = Rule("all", "2/h", key="all:{ip}")
SEARCH = Rule("search", "5/h", key="search:{user}", match="GET /search/{word}", replaces="all")
ANN = {"ip": "192.0.2.1", "user": "ann"}


def names(rules: Rules, path: str, identity: Any = ANN, root: str = "") -> list[str]:
    return [each.rule.name for each in rules.applicable(Request("GET", path, identity, root=root)).applied]


@pytest.mark.parametrize(
    ("path", "root", "apply"),
    [
        ("/search/x", "", ["search"]),
        ("/v1/search/x", "/v1", ["search"]),
        ("/search", "", ["all"]),
        ("/SEARCH/x", "", ["all", "search"]),
        ("/search/x/", "", ["all", "search"]),
        ("/a/../search/x", "", ["all", "search"]),
        ("//search/x", "", ["all", "search"]),
    ],
)
def test_a_rule_replaces_where_a_path_is_written_as_its_pattern_and_adds_to_the_other_elsewhere(
    path: str, root: str, apply: list[str]
) -> None:
    rules = Rules([ALL, SEARCH])
    assert names(rules, path, root=root) == apply
    assert [rule.name for rule, _, _ in rules.templates("GET", path, root)] == apply
    if not root:
        assert [match.rule.name for match in rules.matching("GET", path)] == apply


def test_a_rule_without_a_key_and_one_in_shadow_mode_replace_nothing() -> None:
    nobody = Rules([ALL, SEARCH]).applicable(Request("GET", "/search/x", {"ip": "192.0.2.1"}))
    assert [each.key for each in nobody.applied] == ["all:192.0.2.1"]
    assert [each.rule.name for each in nobody.unmade] == ["search"]
    tried = Rule("search", "5/h", key="search:{user}", match="/search/*", replaces="all", mode="shadow")
    assert names(Rules([ALL, tried]), "/search/x") == ["all", "search"]


def test_a_rule_that_is_replaced_replaces_as_before() -> None:
    one = Rule("one", "9/h", key="one", match="/a/{b}", replaces=["search", "any"])
    rules = Rules([ALL, Rule("any", "9/h", key="any", match="/a/*", replaces="all"), SEARCH, one])
    assert names(rules, "/a/b") == ["one"]
    assert names(rules, "/a/b/c") == ["any"]


def test_an_explanation_names_the_rule_that_replaces() -> None:
    assert str(Rules([ALL, SEARCH]).explain(Request("GET", "/search/x", ANN))).splitlines() == [
        "GET /search/x",
        "  replaced  all     -           2/h  rule 'search' replaces it",
        "  applies   search  search:ann  5/h  GET /search/{word} matches; user from the identity",
    ]


@pytest.mark.parametrize(
    ("replaces", "problem"),
    [
        ("al", "there is no rule 'al': did you mean 'all'?"),
        ("b", "it replaces 'b', which replaces it in turn: no rule would apply"),
        ("a", "it replaces 'a', which replaces it in turn"),
        ("asked", "routes ask for rule 'asked', after the rules that match were charged: give rule 'asked' a match"),
        (7, "replaces is the name of a rule, or several, not 7"),
        ([None], "replaces is the name of a rule, or several"),
    ],
)
def test_what_cannot_be_replaced_is_an_error(replaces: Any, problem: str) -> None:
    with pytest.raises(RulesError, match="rule 'a'") as refused:
        Rules(
            [
                Rule("a", "9/h", key="a", match="/a", replaces=replaces),
                Rule("b", "9/h", key="b", match="/b", replaces="c"),
                Rule("c", "9/h", key="c", match="/c", replaces="a" if replaces == "b" else "all"),
                Rule("asked", "9/h", key="asked", match=None),
                ALL,
            ]
        )
    assert problem in str(refused.value)
    assert refused.value.field == "replaces"


def test_a_rule_that_a_route_asks_for_comes_too_late_to_replace() -> None:
    with pytest.raises(RulesError, match="routes ask for it, after the rules that match were charged: give it a match"):
        Rules([ALL, Rule("asked", "9/h", key="asked", match=None, replaces="all")])


def test_a_file_says_it_and_tells_where_it_is_wrong() -> None:
    text = """
[[rules]]
name = "all"
quota = "2/h"
key = "all"
[[rules]]
name = "search"
quota = "5/h"
key = "search"
match = "/search"
replaces = "all"
"""
    assert names(Rules.loads(text, format="toml"), "/search") == ["search"]
    assert names(Rules.loads(text.replace('"all"\n"', '["all"]'), format="toml"), "/search") == ["search"]
    with pytest.raises(RulesError, match=r"<text>:11:12: rule 'search': there is no rule 'al'"):
        Rules.loads(text.replace('replaces = "all"', 'replaces = "al"'), format="toml")


def test_rules_that_replace_travel_between_processes() -> None:
    assert names(pickle.loads(pickle.dumps(Rules([ALL, SEARCH]))), "/search/x") == ["search"]
