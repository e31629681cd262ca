"""Why a rule applies to a request, or does not."""

from collections.abc import Mapping

import pytest

from batchlimit.rules import Request, Rule, Rules

RULES = Rules(
    [
        Rule("login", "5/minute", key="login:{ip}", match=["POST /login", "POST /v2/login"], on_failure="closed"),
        Rule("api", "100/s burst 200", key="user:{user}", match="/api/*", cost=2),
        Rule("item", "10/s", key="item:{id}", match="/api/items/{id}", cost=lambda request: 1, mode="shadow"),
        Rule("all", "5000/s", key="all"),
    ]
)


def test_it_reads_as_a_table() -> None:
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
def test_it_says_why(
    method: str, path: str, identity: Mapping[str, object], rule: str, outcome: str, key: str | None, why: str
) -> None:
    (verdict,) = (each for each in RULES.explain(Request(method, path, identity)).verdicts if each.rule.name == rule)
    assert (verdict.outcome, verdict.key) == (outcome, key)
    assert why in verdict.why


@pytest.mark.parametrize("path", ["/", "/login", "/api/items/7", "/api//items/../items/%37", "/API", "*", ""])
@pytest.mark.parametrize("method", ["GET", "POST", "post"])
@pytest.mark.parametrize("identity", [{}, {"ip": "203.0.113.9", "user": None}, {"user": "ann"}])
def test_it_tells_what_applies(method: str, path: str, identity: Mapping[str, object]) -> None:
    request = Request(method, path, identity)
    applied, unmade = RULES.applicable(request)
    verdicts = RULES.explain(request).verdicts
    assert [(each.rule, each.key) for each in verdicts if each.outcome == "applies"] == list(applied)
    assert [each.rule for each in verdicts if each.outcome == "no key"] == [each.rule for each in unmade]
