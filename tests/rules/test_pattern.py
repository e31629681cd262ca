"""Which requests a pattern matches."""

import re
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchlimit.rules import Rule, Rules, RulesError

MATCHES = [
    # pattern, method, path, parameters (None: it does not match)
    ("*", "OPTIONS", "*", {}),
    ("*", "GET", "/", {}),
    ("*", "GET", "/a/b", {}),
    ("/*", "GET", "/a/b", {}),
    ("/", "GET", "/", {}),
    ("/", "GET", "/a", None),
    ("POST /login", "POST", "/login", {}),
    ("POST /login", "post", "/login", {}),
    ("post /login", "POST", "/login", {}),
    ("POST /login", "GET", "/login", None),
    ("POST *", "POST", "/anything", {}),
    ("POST *", "GET", "/anything", None),
    ("GET,PUT /x", "PUT", "/x", {}),
    ("GET,PUT /x", "POST", "/x", None),
    ("* /x", "PURGE", "/x", {}),
    ("PROPPATCH,COPY,MOVE,REPORT,SEARCH,PURGE /x", "PROPPATCH", "/x", {}),
    # A handler of GET answers HEAD as well.
    ("GET /x", "HEAD", "/x", {}),
    ("HEAD /x", "GET", "/x", None),
    # A prefix is the prefix itself, too, but no other name that begins with it.
    ("/api/*", "GET", "/api/items/7", {}),
    ("/api/*", "GET", "/api/", {}),
    ("/api/*", "GET", "/api", {}),
    ("/api/*", "GET", "/apis", None),
    ("/api/*", "GET", "/", None),
    # A parameter is one segment, and not an empty one.
    ("/items/{id}", "GET", "/items/7", {"id": "7"}),
    ("/items/{id}", "GET", "/items/Ab", {"id": "Ab"}),
    ("/items/{id}", "GET", "/items/", None),
    ("/items/{id}", "GET", "/items/7/tags", None),
    ("/items/{id}/tags/{tag}", "GET", "/items/7/tags/x", {"id": "7", "tag": "x"}),
    ("/items/{id}/*", "GET", "/items/7/tags/x", {"id": "7"}),
    # A slash at the end, and case, make no other path.
    ("/login", "GET", "/login/", {}),
    ("/login/", "GET", "/login", {}),
    ("/login", "GET", "/LOGIN", {}),
    ("/Login", "GET", "/login", {}),
    # A rule applies to a path however it is written.
    ("/api/x", "GET", "//api//x", {}),
    ("/api/x", "GET", "/api/./x", {}),
    ("/api/x", "GET", "/static/../api/x", {}),
    ("/api/x", "GET", "/api/y/..//x", {}),
    ("/api/x", "GET", "/../api/x", {}),
    ("/api/x", "GET", "/api/x/.", {}),
    ("/api/x", "GET", "/api/%78", {}),
    ("/api/x", "GET", "/api%2fx", {}),
    ("/api/x", "GET", "/%2e%2e/api/x", {}),
    ("/api/x", "GET", "/%252e/api/x", {}),
    ("/api/x", "GET", "\\api\\x", {}),
    # The path as it came is one of its readings.
    ("/static/*", "GET", "/static/../api/x", {}),
    ("/items/{id}", "GET", "/items/%37", {"id": "%37"}),
    ("/a/x", "GET", "/a/b//../x", {}),  # as a file system reads it
    ("/a/b/x", "GET", "/a/b//../x", {}),  # as RFC 3986 does
    # Signs of other routers' patterns that paths have too.
    ("/v1/items:cancel", "GET", "/v1/items:cancel", {}),
    ("/odata/$metadata", "GET", "/odata/$metadata", {}),
    ("/items(5)", "GET", "/items(5)", {}),
    ("/c++", "GET", "/c++", {}),
    ("/~ann/@bob/a,b", "GET", "/~ann/@bob/a,b", {}),
]


@pytest.mark.parametrize(("pattern", "method", "path", "parameters"), MATCHES)
def test_a_pattern_matches(pattern: str, method: str, path: str, parameters: dict[str, str] | None) -> None:
    found = Rules([Rule("rule", "1/s", key="all", match=pattern)]).matching(method, path)
    assert [dict(match.parameters) for match in found] == ([] if parameters is None else [parameters])


@pytest.mark.parametrize(
    ("match", "says"),
    [
        ("", "expected methods and one path"),
        ("GET POST /x", "one path"),
        ("login", "begins with a slash"),
        ("POST", r"write 'POST \*' for all paths"),
        ("POST login", "begins with a slash"),
        ("POST, /x", "empty or malformed method"),
        (",GET /x", "empty or malformed method"),
        ("(GET) /x", "empty or malformed method"),
        ("/a//b", "can never match"),
        ("//", "can never match"),
        ("//*", "can never match"),
        ("/a/../b", "can never match"),
        ("/a/./b", "can never match"),
        ("/a?b=1", "no query"),
        ("/a#b", "no query"),
        ("/a%20b", "matched decoded"),
        ("/*/b", "stands at the end"),
        ("/a*", "stands at the end"),
        ("/a/**", "stands at the end"),
        ("/a/v{n}", "a whole segment"),
        ("/a/{", "a whole segment"),
        ("/a/{}", "a parameter is a name"),
        ("/a/{b c}", "one path"),
        ("/a/{b-c}", "a parameter is a name"),
        ("/{a}/{a}", "a parameter twice"),
        # As other routers write it.
        ("/items/<int:id>", "such as {id}"),
        ("/items/<id>", "such as {id}"),
        ("/:id", "such as {id}"),
        ("/users/:id?", "such as {id}"),
        (r"/items/(?P<id>\d+)", "such as {id}"),
        ("/items/{id:int}", "'/\\*' at the end"),
        ("/files/{rest:path}", "'/\\*' at the end"),
        ("/files/{rest...}", "'/\\*' at the end"),
        ("/items/{id:[0-9]+}", "no regular expression"),
        ("/items/[id]", "no regular expression"),
        ("/v[0-9]/x", "no regular expression"),
        ("/users/.+", "no regular expression"),
        ("/users/.*", "no regular expression"),
        (r"/users/\d+", "no regular expression"),
        ("/(?:a)/x", "no regular expression"),
        ("/a(bc)?", "no regular expression"),
        ("^/login$", "no regular expression"),
        ("/login$", "no regular expression"),
        ("/a|/b", "several patterns are a list"),
        ("/(a|b)", "several patterns are a list"),
        ("/a,/b", "several patterns are a list"),
        ("ANY /x", "write '/x' for every method"),
        ("all /x", "write '/x' for every method"),
        ("GET|POST /x", "separate methods by commas"),
        ("~ /x", "malformed method"),
        ("~* /x", "malformed method"),
        ([], "can never match"),
        (5, "match is a str"),
        (["/x", 5], "match is a str"),
    ],
)
def test_a_pattern_that_can_never_match_is_refused(match: str, says: str) -> None:
    with pytest.raises(RulesError, match=says) as refused:
        Rule("rule", "1/s", key="all", match=match)
    assert (refused.value.rule, refused.value.field) == ("rule", "match")


@pytest.mark.parametrize(
    ("match", "says"),
    [
        ("PSOT /x", "'PSOT /x' is for requests of the method PSOT: did you mean POST?"),
        ("GET,DELTE /x", "did you mean DELETE?"),
        ("TRACK /x", "did you mean TRACE?"),
    ],
)
def test_a_method_that_is_nearly_a_usual_one_is_one_and_most_likely_a_slip(match: str, says: str) -> None:
    with pytest.warns(UserWarning, match=re.escape(says)):
        rule = Rule("rule", "1/s", key="all", match=match)
    assert Rules([rule]).matching(match.split()[0].rpartition(",")[2], "/x")
    with pytest.warns(UserWarning, match=re.escape(says)):
        Rules([], exempt=match)


@given(st.text("/{}*:ab.+?|<>[]()^$\\,%#", min_size=1).map("/{}".format))
@example("/{a}/b/*")
def test_a_pattern_that_is_accepted_matches_the_path_that_it_spells(match: str) -> None:
    with suppress(RulesError):
        rules = Rules([Rule("rule", "1/s", key="all", match=match)])
        assert rules.matching("GET", re.sub("[{]\\w+[}]", "7", match.replace("*", "x")))


def test_all_matching_rules_apply_in_their_order() -> None:
    patterns = {"deep": "/api/items/{id}", "all": "*", "api": "/api/*", "write": "POST *", "items": "/api/items/*"}
    rules = Rules([Rule(name, "1/s", key=name, match=match) for name, match in patterns.items()])
    assert [match.rule.name for match in rules.matching("GET", "/api/items/7")] == ["deep", "all", "api", "items"]


def test_a_rule_with_several_patterns_applies_once() -> None:
    rules = Rules([Rule("rule", "1/s", key="all", match=["/x", "/{name}", "*"])])
    assert len(rules.matching("GET", "/x")) == 1
