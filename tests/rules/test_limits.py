"""Some keys of a rule have a quota of their own: those of a plan."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from batchlimit import FailurePolicy, Quota, RateLimiter
from batchlimit.integrations.wsgi import RateLimitMiddleware, decisions
from batchlimit.rules import Request, Rule, RuleFile, Rules, RulesError

USER = Rule("user", "2/hour", key="user:{plan}:{user}", on_failure="open", mode="shadow")
FILE = """
[limits]
"user:pro:*" = "600/hour"
"*" = "1/hour"
[[rules]]
name = "user"
quota = "2/hour"
key = "user:{plan}:{user}"
"""


def test_a_limit_comes_before_the_rule_of_its_keys_and_has_the_rest_of_it() -> None:
    rules = Rules([USER], limits={"user:pro:*": "600/hour", "user:free:ann": Quota.per_hour(9)})
    assert {name: str(quota) for name, quota in rules.quotas.items()} == {
        "user:pro:*": "600/h",
        "user:free:ann": "9/h",
        "user:*:*": "2/h",
    }
    with RateLimiter.from_url("memory://", rules.quotas) as limiter:
        limits = [limiter.decide(key).limit for key in ("user:pro:ann", "user:free:ann", "user:free:bob")]
        assert limits == [600, 9, 2]
    assert {(limit.mode, limit.on_failure) for limit in rules.limits.values()} == {("shadow", FailurePolicy.open())}
    assert pickle.loads(pickle.dumps(rules)).quotas == rules.quotas


def served(rules: Any) -> Any:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        told = decisions(environ)["user"]
        return [f"{told.limit} {told.remaining}".encode()]

    return RateLimitMiddleware(app, "memory://", rules, identify=lambda environ: environ["test.who"])


@pytest.mark.parametrize("form", ["code", "file"])
def test_a_face_goes_by_them_and_its_fields_tell_of_them(form: str, tmp_path: Any) -> None:
    rules: Any = Rules([Rule("user", "2/hour", key="user:{plan}:{user}")], limits={"user:pro:*": "600/hour"})
    if form == "file":
        (tmp_path / "limits.toml").write_text(FILE)
        rules = RuleFile(tmp_path / "limits.toml")
    limited, told = served(rules), dict[str, str]()

    def ask(plan: str) -> list[bytes]:
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "test.who": {"plan": plan, "user": "ann"}}
        return list(limited(environ, lambda status, fields: told.update(fields, status=status)))

    assert [ask("free"), ask("free")] == [[b"2 1"], [b"2 0"]]
    assert ask("free")
    assert told["status"][:3] == "429"
    assert ask("pro") == [b"600 599"]
    assert "q=600;w=3600" in told["ratelimit-policy"]
    assert limited.statistics().findings == {"memory-store": ("",)}


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"usr:pro:*": "9/h"}, "limit 'usr:pro:*': no rule has such keys; rules have 'user:*:*'"),
        ({"user:*": "9/h"}, "limit 'user:*': no rule has such keys"),
        ({"user:*:*": "9/h"}, "a rule has this quota already"),
        ({"user:pro:*": "9/month"}, "expected a unit"),
        ({"user:pro:*": 9}, "9"),
        ({"user:pro:*": "2/h"}, "3 tokens never fit a burst of 2"),
    ],
)
def test_a_limit_that_no_rule_can_have_is_an_error(limits: Any, problem: str) -> None:
    with pytest.raises(RulesError) as refused:
        Rules([Rule("user", "9/hour", key="user:{plan}:{user}", cost=3)], limits=limits)
    assert problem in str(refused.value)
    assert refused.value.field == "limits"


def test_limits_come_by_name() -> None:
    with pytest.raises(TypeError, match="a mapping from key or pattern to quota, not as"):
        Rules([], limits=[("a", "1/s")])  # type: ignore[arg-type]


# What is exempt: patterns match a path as it is written, so that no client writes its path as an exempt one
ALL = Rule("all", "100/s", key="all")


def is_ann(request: Request) -> bool:
    return request.identity.get("user") == "ann"


async def is_bob(request: Request) -> bool:
    return True


@pytest.mark.parametrize(
    ("pattern", "method", "path", "root", "is_exempt"),
    [
        ("GET /health", "GET", "/health", "", True),
        ("GET /health", "HEAD", "/health", "", True),
        ("GET /health", "POST", "/health", "", False),
        ("/health", "GET", "/health", "/v1", True),
        ("/health", "GET", "/v1/health", "/v1", True),
        ("/v1/health", "GET", "/v1/health", "/v1/", True),
        ("/health", "GET", "/v1health", "/v1", False),
        ("/health", "GET", "/api/v1/health", "/v1", False),
        ("/health", "GET", "/Health", "", False),
        ("/health", "GET", "/health/", "", False),
        ("/health/", "GET", "/health/", "", True),
        ("/health", "GET", "/health\n", "", False),
        ("/health", "GET", "/x/../health", "", False),
        ("/static/*", "GET", "/static/a/b.css", "", True),
        ("/static/*", "GET", "/static", "", True),
        ("/static/*", "GET", "/statics", "", False),
        ("/static/*", "GET", "/static/../api", "", False),
        ("/static/*", "GET", "/static//api", "", False),
        ("/static/*", "GET", "/static/%2e%2e/api", "", False),
        ("/static/*", "GET", "/static/..\\api", "", False),
        ("/static/*", "GET", "/STATIC/a", "", False),
        ("/a.b/{id}/x", "GET", "/a.b/7/x", "", True),
        ("/a.b/{id}/x", "GET", "/a.b//x", "", False),
        ("/a.b/{id}/x", "GET", "/acb/7/x", "", False),
        ("*", "GET", "/anything", "", True),
        ("OPTIONS *", "GET", "/anything", "", False),
    ],
)
def test_a_pattern_exempts_what_is_written_so_alone(
    pattern: str, method: str, path: str, root: str, is_exempt: bool
) -> None:
    rules = Rules([ALL], exempt=pattern)
    request = Request(method, path, root=root)
    assert bool(rules.applicable(request).applied) is not is_exempt
    assert bool(rules.templates(method, path, root)) is not is_exempt
    assert (rules.explain(request).verdicts[0].outcome == "exempt") is is_exempt


def test_an_explanation_says_what_exempts_a_request() -> None:
    rules = Rules([ALL, Rule("api", "9/s", key="api", match="/api/*")], exempt=["/health", is_ann])
    assert str(rules.explain(Request("GET", "/health"))).splitlines() == [
        "GET /health",
        "  exempt    all  -  100/s  /health is exempt",
        "  no match  api  -  9/s    /api/* is for other paths",
    ]
    assert rules.explain(Request("GET", "/", {"user": "ann"})).verdicts[0].why == "a function exempts it"
    assert rules.explain(Request("GET", "/")).verdicts[0].outcome == "applies"


@pytest.mark.parametrize("told", [True, False, None])
def test_a_function_exempts_by_true_alone(told: bool | None) -> None:
    exemption = Rules([ALL], exempt=[lambda request: told]).exemption  # type: ignore[list-item, return-value]
    assert exemption.by_functions(Request("GET", "/")) is (told is True)


@pytest.mark.parametrize("told", [1, 0, "yes"])
def test_a_function_that_returns_no_bool_is_an_error(told: object) -> None:
    exemption = Rules([ALL], exempt=[lambda request: told]).exemption  # type: ignore[list-item, return-value]
    with pytest.raises(TypeError, match="True or False"):
        exemption.by_functions(Request("GET", "/"))


@pytest.mark.parametrize(
    ("exempt", "problem"),
    [
        ("health", "a path begins with a slash"),
        (["/a", "/b?c"], "a path has no query"),
        ([7], "match is a str or several"),
        (is_bob, "is asynchronous: let identify ask, and exempt look"),
    ],
)
def test_an_exemption_that_cannot_work_is_an_error(exempt: object, problem: str) -> None:
    with pytest.raises(RulesError, match=problem):
        Rules([ALL], exempt=exempt)  # type: ignore[arg-type]


def test_rules_travel_between_processes_with_what_is_exempt() -> None:
    rules = pickle.loads(pickle.dumps(Rules([ALL], exempt=["/health", is_ann])))
    assert rules.applicable(Request("GET", "/health")).applied == ()
    assert rules.exemption.by_functions(Request("GET", "/", {"user": "ann"}))


# Rules that match no request by themselves: a route asks for one by its key
SEARCH = Rule("search", "10/s", key="search:{user}", match=None)
OF_API = Rule("api", "100/s", key="user:{user}", match="/api/*")


def test_a_rule_without_match_applies_to_no_request_by_itself() -> None:
    rules = Rules([SEARCH, OF_API])
    assert SEARCH.match == ()
    assert rules.matching("GET", "/search") == ()
    applied, unmade = rules.applicable(Request("GET", "/api/search", {"user": "ann"}))
    assert ([each.rule.name for each in applied], unmade) == (["api"], ())


def test_a_route_asks_for_a_rule_by_its_key() -> None:
    assert Rules([OF_API, SEARCH]).asked("search:{user}") is SEARCH


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
        Rules([SEARCH, OF_API]).asked(key)
    assert str(refused.value).startswith(says)


def test_two_rules_for_routes_have_two_keys() -> None:
    with pytest.raises(RulesError, match=r"rule 'other': routes ask for .* and rule 'search' has it too"):
        Rules([SEARCH, Rule("other", "10/s", key="search:{user}", match=None, cost=2)])


def test_a_rule_for_routes_shares_the_bucket_of_one_that_matches() -> None:
    rules = Rules([OF_API, Rule("heavy", "100/s", key="user:{user}", match=None, cost=10)])
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


def test_a_rule_for_routes_is_explained() -> None:
    (verdict,) = Rules([SEARCH]).explain(Request("GET", "/search")).verdicts
    assert verdict[1:] == ("no match", None, "routes ask for it by its key")


# A rule replaces others where it applies: a route's own limit in place of the default one
DEFAULT = Rule("all", "2/h", key="all:{ip}")
OWN = Rule("search", "5/h", key="search:{user}", match="GET /search/{word}", replaces="all")
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
def test_a_rule_replaces_where_a_path_is_written_as_its_pattern(path: str, root: str, apply: list[str]) -> None:
    rules = Rules([DEFAULT, OWN])
    assert names(rules, path, root=root) == apply
    assert [rule.name for rule, _, _ in rules.templates("GET", path, root)] == apply
    if not root:
        assert [match.rule.name for match in rules.matching("GET", path)] == apply


def test_a_rule_without_a_key_and_one_in_shadow_mode_replace_nothing() -> None:
    nobody = Rules([DEFAULT, OWN]).applicable(Request("GET", "/search/x", {"ip": "192.0.2.1"}))
    assert [each.key for each in nobody.applied] == ["all:192.0.2.1"]
    assert [each.rule.name for each in nobody.unmade] == ["search"]
    tried = Rule("search", "5/h", key="search:{user}", match="/search/*", replaces="all", mode="shadow")
    assert names(Rules([DEFAULT, tried]), "/search/x") == ["all", "search"]


def test_a_rule_that_is_replaced_replaces_as_before() -> None:
    one = Rule("one", "9/h", key="one", match="/a/{b}", replaces=["search", "any"])
    rules = Rules([DEFAULT, Rule("any", "9/h", key="any", match="/a/*", replaces="all"), OWN, one])
    assert names(rules, "/a/b") == ["one"]
    assert names(rules, "/a/b/c") == ["any"]


def test_an_explanation_names_the_rule_that_replaces() -> None:
    assert str(Rules([DEFAULT, OWN]).explain(Request("GET", "/search/x", ANN))).splitlines() == [
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
                DEFAULT,
            ]
        )
    assert problem in str(refused.value)
    assert refused.value.field == "replaces"


def test_a_rule_that_a_route_asks_for_comes_too_late_to_replace() -> None:
    with pytest.raises(RulesError, match="routes ask for it, after the rules that match were charged: give it a match"):
        Rules([DEFAULT, Rule("asked", "9/h", key="asked", match=None, replaces="all")])


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
    assert names(pickle.loads(pickle.dumps(Rules([DEFAULT, OWN]))), "/search/x") == ["search"]


# Why a rule applies to a request, or does not
RULES = Rules(
    [
        Rule("login", "5/minute", key="login:{ip}", match=["POST /login", "POST /v2/login"], on_failure="closed"),
        Rule("api", "100/s burst 200", key="user:{user}", match="/api/*", cost=2),
        Rule("item", "10/s", key="item:{id}", match="/api/items/{id}", cost=lambda request: 1, mode="shadow"),
        Rule("all", "5000/s", key="all"),
    ]
)


def test_an_explanation_reads_as_a_table() -> None:
    request = Request("GET", "/api/items/7", {"ip": "203.0.113.9", "user": "ann"})
    terms = "100/s burst 200 cost 2", "10/s cost by function shadow", "5000/s"
    width = len(terms[1])
    assert str(RULES.explain(request)).splitlines() == [
        "GET /api/items/7",
        f"  no match  login  -         {'5/m':{width}}  "
        "POST /login is for other paths; POST /v2/login is for other paths",
        f"  applies   api    user:ann  {terms[0]:{width}}  /api/* matches; user from the identity",
        f"  applies   item   item:7    {terms[1]:{width}}  /api/items/{{id}} matches; id from the path",
        f"  applies   all    all       {terms[2]:{width}}  * matches",
    ]


@pytest.mark.parametrize(
    ("method", "path", "identity", "rule", "outcome", "key", "why"),
    [
        ("GET", "/login", {}, "login", "no match", None, "POST /login is for other methods; POST /v2/login is for"),
        ("POST", "/v2/login", {"ip": "::1"}, "login", "applies", "login:%3A%3A1", "POST /v2/login matches; ip from"),
        ("POST", "/x/..//login", {"ip": "a"}, "login", "applies", "login:a", "matches '/login', another reading of"),
        ("POST", "/login\n", {"ip": "a"}, "login", "applies", "login:a", "matches '/login', another reading of"),
        ("POST", "/login", {}, "login", "no key", None, "POST /login matches; there is no {ip}"),
        ("GET", "/api/items/7", {"id": 8}, "item", "applies", "item:8", "id from the identity"),
    ],
)
def test_an_explanation_says_why(
    method: str, path: str, identity: Any, rule: str, outcome: str, key: str | None, why: str
) -> None:
    (verdict,) = (each for each in RULES.explain(Request(method, path, identity)).verdicts if each.rule.name == rule)
    assert (verdict.outcome, verdict.key) == (outcome, key)
    assert why in verdict.why


@pytest.mark.parametrize("path", ["/", "/login", "/api/items/7", "/api//items/../items/%37", "/API", "*", ""])
@pytest.mark.parametrize("method", ["GET", "POST", "post"])
@pytest.mark.parametrize("identity", [{}, {"ip": "203.0.113.9", "user": None}, {"user": "ann"}])
def test_an_explanation_tells_what_applies(method: str, path: str, identity: Mapping[str, object]) -> None:
    request = Request(method, path, identity)
    applied, unmade = RULES.applicable(request)
    verdicts = RULES.explain(request).verdicts
    assert [(each.rule, each.key) for each in verdicts if each.outcome == "applies"] == list(applied)
    assert [each.rule for each in verdicts if each.outcome == "no key"] == [each.rule for each in unmade]


# What the page of rules shows is what its examples print
_PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
_SHOWN = re.findall(r"```python\n([^`]*)```\n\n```\n([^`]*)```", _PAGE)


@pytest.mark.parametrize(("example", "shown"), _SHOWN, ids=range(len(_SHOWN)))
def test_an_example_prints_what_stands_below_it(example: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example, "example", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == shown


def test_the_examples_show_what_they_print() -> None:
    assert len(_SHOWN) == 4


@pytest.mark.parametrize("form", ["toml", "yaml"])
def test_the_files_of_the_page_are_rules(form: str) -> None:
    (text,) = re.findall(rf"```{form}\n([^`]*)```", _PAGE)
    assert len(Rules.loads(text, format=form, functions={"by_size": len})) in (1, 2)  # type: ignore[arg-type]
