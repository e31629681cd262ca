"""The matcher beside a plain one, and how many steps it takes."""

import posixpath
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchlimit.rules import Request, Rule, Rules, RulesError
from batchlimit.rules.matcher import DECODINGS, Memory, readings
from tests.work import Work

SEGMENTS = st.sampled_from(["a", "b", "A", "api", "x", "é", "{p}", "{q}"])
PATTERNS = st.builds(
    lambda methods, segments, tail: f"{methods}/{'/'.join(segments)}{tail}",
    st.sampled_from(["", "GET ", "POST ", "GET,POST ", "* "]),
    st.lists(SEGMENTS, max_size=5, unique_by=lambda segment: segment if segment[0] == "{" else object()),
    st.sampled_from(["", "/*", "/"]),
).map(lambda text: re.sub("/{2,}", "/", text))
PLAIN_PATHS = st.lists(st.sampled_from(["a", "b", "A", "api", "x", "é", "É", "zz", "7"]), max_size=6).map(
    lambda segments: "/" + "/".join(segments)
)
METHODS = st.sampled_from(["GET", "POST", "HEAD", "PUT", "get"])


def plain(pattern: str, method: str, path: str) -> dict[str, str] | None:
    """Return the parameters as a regular expression finds them, or None."""
    methods, _, template = pattern.rpartition(" ")
    wanted = methods.replace("GET", "GET,HEAD").split(",")
    if methods not in ("", "*") and method.upper() not in wanted:
        return None
    body = template.removesuffix("*").rstrip("/")
    expression = re.sub(r"\\{(\w)\\}", r"(?P<\1>[^/]+)", re.escape(body)) + ("(/.*)?" if template[-1:] == "*" else "/?")
    found = re.fullmatch(expression, path, re.IGNORECASE | re.DOTALL)
    return found.groupdict() if found else None


@given(st.lists(PATTERNS, min_size=1, max_size=8), METHODS, PLAIN_PATHS)
@example(["/{p}/a", "/b/{q}", "/b/*", "/*"], "GET", "/b/a")
def test_what_matches_is_what_a_regular_expression_matches(patterns: list[str], method: str, path: str) -> None:
    rules = Rules([Rule(f"r{i}", "999/s", key="all", match=pattern) for i, pattern in enumerate(patterns)])
    expected = [(f"r{i}", plain(pattern, method, path)) for i, pattern in enumerate(patterns)]
    found = [(match.rule.name, dict(match.parameters)) for match in rules.matching(method, path)]
    assert found == [(name, parameters) for name, parameters in expected if parameters is not None]


@given(st.lists(PATTERNS, min_size=1, max_size=6), METHODS, PLAIN_PATHS)
def test_the_first_pattern_of_a_rule_that_matches_gives_the_parameters(patterns: Any, method: str, path: str) -> None:
    found = Rules([Rule("rule", "999/s", key="all", match=patterns)]).matching(method, path)
    expected = [parameters for pattern in patterns if (parameters := plain(pattern, method, path)) is not None]
    assert [dict(match.parameters) for match in found] == expected[:1]


def percent(path: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in "/abx" else quote(letter) for letter in path)


DISGUISES: Mapping[str, Callable[[str], str]] = {
    "slashes": lambda path: path.replace("/", "///"),
    "dots": lambda path: path.replace("/", "/./"),
    "up": lambda path: path.replace("/", "/up/../"),
    "above": lambda path: "/../.." + path,
    "encoded": percent,
    "encoded twice": lambda path: quote(percent(path), safe=""),
    "backslashes": lambda path: path.replace("/", "\\"),
    "upper case": str.upper,
    "slash": lambda path: path + "/",
    "newline": lambda path: path + "\n",
    "slash and newline": lambda path: percent(path + "/\n"),
    "all": lambda path: percent("/../up/.." + path.replace("/", "//./")).upper() + "/",
}


@pytest.mark.parametrize("disguise", DISGUISES)
@given(path=PLAIN_PATHS.filter(lambda path: path.isascii() and path != "/"), pattern=PATTERNS)
def test_a_rule_is_not_escaped_by_another_spelling(disguise: str, path: str, pattern: str) -> None:
    rules = Rules([Rule("rule", "999/s", key="all", match=pattern)])
    if rules.matching("GET", path):
        assert rules.matching("GET", DISGUISES[disguise](path))


@given(st.text(st.sampled_from("ab/.%25eEfFcC5\\"), max_size=30).map(lambda text: "/" + text))
def test_a_rule_applies_to_a_path_as_it_came_and_as_it_is_normalised(path: str) -> None:
    rules = Rules([Rule("all", "999/s", key="all"), Rule("a", "1/s", key="a", match="/a/*")])
    names = [match.rule.name for match in rules.matching("GET", path)]
    assert names[0] == "all"
    if re.match("/a(/|$)", path) or re.match("/a(/|$)", posixpath.normpath(path).replace("//", "/")):
        assert "a" in names


@given(METHODS, st.text(st.characters(codec=None), max_size=60))
def test_any_text_is_a_path(method: str, path: str) -> None:
    rules = Rules([Rule("all", "999/s", key="all"), Rule("a", "1/s", key="p:{p}", match="/{p}/{q}/*")])
    assert rules.matching(method, path)[0].rule.name == "all"


@pytest.mark.parametrize("root", ["/v1", "/v1/"])
@pytest.mark.parametrize("path", ["/login", "/v1/login", "/v1/login\n", "//v1//login", "/%761/login"])
def test_a_rule_is_not_escaped_by_writing_or_leaving_out_where_the_application_is_mounted(path: str, root: str) -> None:
    rules = Rules([Rule("login", "1/s", key="login", match="/login")])
    assert rules.applicable(Request("GET", path, root=root)).applied
    assert not rules.applicable(Request("GET", "/v10/login", root=root)).applied


@pytest.mark.parametrize("target", ["http://h{}", "HTTPS://u:p@h:1{}?q", "http:{}", "x:y{}", "//h{};x#y", "http://[{}"])
@pytest.mark.parametrize("path", ["/login", "/x//../login", "/x/../%6cogin", "/login\n"])
def test_a_target_that_is_a_whole_url_is_read_as_its_path_too(target: str, path: str) -> None:
    rules = Rules([Rule("login", "1/s", key="login", match="/login"), Rule("all", "1/s", key="all")])
    names = [match.rule.name for match in rules.matching("GET", target.format(path))]
    assert names == (["all"] if target[:1] == "x" or "[" in target else ["login", "all"])


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/zzz/v1/login", "/v1"),  # Litestar
        ("/alogin", "/a"),  # gunicorn: the root is what a client says
        ("/x/a//login", "/x/a//"),
        ("/v1http://h/login", "/v1"),
        ("/login", "/v1"),  # a server that has cut it off
    ],
)
def test_a_path_is_read_without_its_root_wherever_that_stands_and_with_it(path: str, root: str) -> None:
    rules = Rules([Rule("login", "1/s", key="login", match="/login"), Rule("v1", "1/s", key="v1", match="/v1/login")])
    applied = [each.rule.name for each in rules.applicable(Request("GET", path, root=root)).applied]
    assert applied == (["login", "v1"] if path == "/login" else ["login"])


PATHOLOGICAL = {
    "long": lambda n: "/a" * n,
    "one segment": lambda n: "/" + "a" * n,
    "slashes": lambda n: "/" * n,
    "dots": lambda n: "/.." * n,
    "down and up": lambda n: "/a/.." * n,
    "encoded": lambda n: "/%61" * n,
    "encoded again and again": lambda n: "/%" + "25" * n + "61",
    "percent signs": lambda n: "%" * n,
    "backslashes": lambda n: "\\." * n,
    "URL": lambda n: "http://h" + "//..%2561" * n,
}
AMBIGUOUS = [
    *("/" + "/".join("a" if bit == "1" else f"{{p{i}}}" for i, bit in enumerate(f"{n:05b}")) + "/*" for n in range(32)),
    "/{a}/{b}/{c}/{d}/{e}/{f}",
]


@pytest.mark.parametrize("path", PATHOLOGICAL)
def test_the_steps_for_a_path_grow_with_its_length(path: str) -> None:
    rules = Rules([Rule(f"r{i}", "999/s", key="all", match=pattern) for i, pattern in enumerate(AMBIGUOUS)])
    Work().of(partial(rules.matching, "GET", "/a"))  # Python 3.12 counts nothing the first time
    short, long = (Work().of(partial(rules.matching, "GET", PATHOLOGICAL[path](n))) for n in (200, 2000))
    assert long < 12 * short


def ambiguous(bits: int) -> Rules:
    """Every pattern of so many literals and parameters, and all of them begin like /a/a/a."""
    patterns = [
        "".join("/a" if number >> bit & 1 else f"/{{p{bit}}}" for bit in range(bits)) for number in range(2**bits)
    ]
    return Rules([Rule(f"r{number}", "999/s", key="all", match=pattern) for number, pattern in enumerate(patterns)])


def test_the_steps_for_ambiguous_patterns_grow_with_their_number() -> None:
    few, many = (Work().of(partial(ambiguous(bits).matching, "GET", "/a" * 20)) for bits in (4, 7))
    assert many < 10 * few


@given(st.text(st.sampled_from("a/.%25\\"), max_size=200))
@example("/%" + "25" * 100 + "2e")
def test_a_path_has_few_readings_and_none_is_longer(path: str) -> None:
    found = readings(path)
    assert found[0] == path
    assert len(found) <= 1 + 12 * (DECODINGS + 1)
    assert max(map(len, found)) <= len(path) + 1


def test_the_steps_to_make_rules_grow_with_their_number() -> None:
    few, many = (
        [Rule(f"r{i}", "1/s", key=f"k{i}:{{ip}}", match=f"GET /things{i}/{{id}}") for i in range(n)] for n in (20, 200)
    )
    assert Work().of(partial(Rules, many)) < 12 * Work().of(partial(Rules, few))


def test_what_is_remembered_of_requests_is_the_same_and_bounded() -> None:
    rules = Rules([Rule("item", "1/s", key="item:{id}", match="GET /items/{id}")])
    for number in [*range(5000), 7]:
        for path in (f"/items/{number}", f"/items/{number}{'x' * 200}", f"/other/{number}"):
            found = [[dict(match.parameters) for match in rules.matching("GET", path)] for _ in range(2)]
            assert found[0] == found[1] == ([{"id": path[7:]}] if "items" in path else [])
            assert len(rules._matching) <= 1024
    known = rules._matching
    assert max(sum(map(len, asked)) for asked in known) <= 160


def test_nobody_changes_what_is_remembered() -> None:
    rules = Rules([Rule("item", "1/s", key="item:{id}", match="/items/{id}")])
    (match,) = rules.matching("GET", "/items/7")
    with pytest.raises(TypeError):
        match.parameters["id"] = "8"  # type: ignore[index]


def test_paths_that_come_once_make_nobody_forget_those_that_come_again() -> None:
    found: list[str] = []

    def find(_method: str, path: str, _root: str) -> str:
        found.append(path)
        return path

    memory = Memory(find)
    often = [("GET", f"/often/{number}", "") for number in range(1024)]
    for asked in often * 2 + [("GET", f"/once/{number}", "") for number in range(100)]:
        assert memory[asked] == asked[1]
    found.clear()
    assert [memory[asked] for asked in often] == [path for _, path, _ in often]
    assert found == []
    assert len(memory) == 1024


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
