"""A view sees what each rule has decided of its request: alike in every framework."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import RequestFactory
from fastapi import FastAPI, WebSocket
from fastapi.testclient import TestClient
from rest_framework.request import Request as RestRequest

from batchlimit import Decision, FailurePolicy, Quota, RateLimiter
from batchlimit.integrations import asgi, django, fastapi, wsgi
from batchlimit.integrations.enforcement import SHOWN, Enforcer, RouteLimit, decisions
from batchlimit.integrations.enforcement.outcome import Outcome
from batchlimit.integrations.enforcement.plan import Bill
from batchlimit.integrations.headers import Fields
from batchlimit.rules import Request, Rule, Rules
from tests.integrations.everywhere import EVERYWHERE, FACES, ROUTING

ASKED = Rule("search", "9/hour", key="search:{user}", match=None)


FOR_ROUTES = pytest.mark.parametrize("routing", [FACES[face] for face in ROUTING], ids=ROUTING)


def told(served: Any, path: str, user: str = "ann") -> Any:
    return json.loads(served.get(path, user).text)


@FOR_ROUTES
def test_a_view_sees_what_is_left_by_each_rule_and_what_its_route_asked_for(routing: Callable[..., Any]) -> None:
    with routing([Rule("all", "5/hour", key="all:{user}"), ASKED]) as served:
        assert told(served, "/hello") == {"all": [True, 5, 4, 0, "store"]}
        assert told(served, "/search") == {"all": [True, 5, 3, 0, "store"], "search": [True, 9, 8, 0, "store"]}
        assert told(served, "/hello", "bob") == {"all": [True, 5, 4, 0, "store"]}


@EVERYWHERE
def test_tokens_in_memory_are_told_too(serving: Callable[..., Any]) -> None:
    with serving([Rule("all", "1000000/s", key="all"), Rule("each", "1000000/s", key="each:{user}"), ASKED]) as served:
        answers = (told(served, "/hello") for _ in range(100))
        found = next(each for each in answers if {left[4] for left in each.values()} == {"local"})
        assert {name: (each[0], each[1], *each[3:]) for name, each in found.items()} == {
            "all": (True, 1000000, 0, "local"),
            "each": (True, 1000000, 0, "local"),
        }


def test_what_a_route_takes_of_the_same_key_by_memory_is_told_by_both_rules() -> None:
    first, second = (Rule(name, "9/hour", key="all") for name in ("first", "second"))
    by_store = Decision(True, 9, 8, 0.0, 400.0, "store", first.quota)
    outcome = Outcome(bill=Bill.of([(first, "all", 1)]), left={"all": (8, None, None)}, decided={"all": by_store})
    assert outcome.add(Outcome(bill=Bill.of([(second, "all", 1)]), left={"all": (7, None, None)}), Fields()) is None
    assert {name: each.remaining for name, each in decisions({SHOWN: outcome.shown}).items()} == {
        "first": 7,
        "second": 7,
    }


@EVERYWHERE
def test_a_rule_in_shadow_mode_refuses_nobody_and_says_when_it_would(serving: Callable[..., Any]) -> None:
    rules = [Rule("all", "9/hour", key="all:{user}"), Rule("two", "2/hour", key="two:{user}", mode="shadow"), ASKED]
    with serving(rules) as served:
        assert [told(served, "/hello")["two"][:3] for _ in range(3)] == [[True, 2, 1], [True, 2, 0], [False, 2, 0]]
        assert told(served, "/search")["two"] == [False, 2, 0, 1800, "shadow"]
        assert told(served, "/hello")["all"][:3] == [True, 9, 4]
        assert "two" not in served.get("/hello").fields["ratelimit"]


def test_tokens_in_memory_of_a_rule_in_shadow_mode_are_told_beside_what_a_route_asked_for() -> None:
    rules = [Rule("all", "1000000/s", key="all", mode="shadow"), Rule("search", "9/hour", key="s", match=None)]
    enforcer, request = enforced(rules)
    outcome = next(each for _ in range(10_000) if (each := enforcer.admit(request)).decided is None)  # by leased tokens
    enforcer.ask(RouteLimit("s"), outcome)
    assert {name: each.source for name, each in decisions({SHOWN: outcome.shown}).items()} == {
        "all": "local",
        "search": "store",
    }


@FOR_ROUTES
def test_a_rule_for_routes_in_shadow_mode_is_seen_too(routing: Callable[..., Any]) -> None:
    with routing([Rule("search", "1/hour", key="search:{user}", match=None, mode="shadow")]) as served:
        found = [told(served, "/search")["search"] for _ in range(2)]
        assert found == [[True, 1, 0, 0, "store"], [False, 1, 0, 3600, "shadow"]]


@EVERYWHERE
def test_a_view_sees_nothing_where_nothing_is_charged(serving: Callable[..., Any]) -> None:
    with serving(Rules([Rule("all", "5/hour", key="all:{user}"), ASKED], exempt="/hello")) as served:
        assert told(served, "/hello") == {}
    with serving([Rule("all", "5/hour", key="all:{user}"), ASKED], enabled=False) as served:
        assert told(served, "/search") == {}


def test_a_request_that_no_middleware_has_seen_is_an_error() -> None:
    for stranger in (RequestFactory().get("/"), {"type": "http"}, {"REQUEST_METHOD": "GET"}, object()):
        with pytest.raises(LookupError, match="no rules were held against this request"):
            decisions(stranger)


def test_a_websocket_sees_the_rules_of_its_handshake() -> None:
    app = FastAPI()

    @app.websocket("/ws")
    async def serve(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_json(fastapi.decisions(websocket)["all"].remaining)

    fastapi.add_rate_limits(app, "memory://", [Rule("all", "5/hour", key="all")])
    with TestClient(app) as client, client.websocket_connect("/ws") as websocket:
        assert websocket.receive_json() == 4


def test_a_request_of_rest_framework_sees_what_django_sees() -> None:
    request = RequestFactory().get("/")
    enforcer, asked = enforced([Rule("all", "5/hour", key="all")])
    request._batchlimit = type("Hold", (), {"outcome": enforcer.admit(asked)})()
    assert django.decisions(RestRequest(request))["all"].remaining == 4


def enforced(rules: list[Rule], limiter: RateLimiter | None = None) -> tuple[Enforcer, Request]:
    made = Rules(rules)
    return Enforcer(limiter or RateLimiter.from_url("memory://", made.quotas), made), Request("GET", "/", {"ip": "a"})


def seen_by(enforcer: Enforcer, request: Request) -> dict[str, Decision]:
    return wsgi.decisions({SHOWN: enforcer.admit(request).shown})


def test_a_limiter_that_enforces_what_a_rule_only_tells_says_the_same() -> None:
    rules = [Rule("two", "5/hour; 9/day", key="two", mode="shadow", cost=2), Rule("all", "9/hour", key="all")]
    strict = RateLimiter.from_url("memory://", Rules(rules).quotas)
    lenient = RateLimiter.from_url("memory://", Rules(rules).quotas, mode=Rules(rules).mode)
    for limiter in (strict, lenient):
        enforcer, request = enforced(rules, limiter)
        found = [seen_by(enforcer, request) for _ in range(3)][-1]
        assert (found["two"].allowed, found["two"].source, found["all"].remaining) == (False, "shadow", 6)
        assert found["two"].retry_after == pytest.approx(720, abs=5)


def test_a_rule_whose_store_is_away_is_told_as_decided_without_it_or_not_at_all() -> None:
    nowhere = "redis://localhost:1/0"
    local = FailurePolicy.local(instances=1)
    rules = [Rule("a", "9/s", key="a", on_failure="open"), Rule("b", "9/s", key="b", on_failure=local)]
    made = Rules(rules)
    with RateLimiter.from_url(nowhere, made.quotas, on_failure=made.on_failure) as limiter:
        found = seen_by(*enforced(rules, limiter))
        assert {name: each.source for name, each in found.items()} == {"a": "fallback", "b": "fallback"}


def test_reset_after_is_told_of_tokens_in_memory() -> None:
    enforcer, request = enforced([Rule("all", "100/s burst 1000", key="all")])
    found = [seen_by(enforcer, request) for _ in range(20)][-1]["all"]
    assert (found.source, found.quota) == ("local", Quota.parse("100/s burst 1000"))
    assert found.reset_after == pytest.approx((1000 - found.remaining) / 100)
    assert asgi.decisions is decisions
