"""What a route asks for, beside the rules that match its requests."""

import json
from typing import Any

import pytest

from batchlimit.integrations.address import FailedIdentity
from batchlimit.integrations.enforcement import Response, RouteLimit
from batchlimit.integrations.enforcement.plan import known_of, mark, marks_of
from batchlimit.rules import Request, Rule, RulesError
from batchlimit.rules.request import NOTHING
from tests.integrations.enforcers import Make
from tests.integrations.structured import read_limits

ALL = Rule("all", "100/hour", key="all")
SEARCH = Rule("search", "5/hour", key="search:{user}", match=None)


def test_a_route_is_charged_to_what_it_asks_for_and_the_fields_tell_of_all_rules(make: Make) -> None:
    twin = make(ALL, SEARCH)
    outcome = twin.admit(user="ann")
    fields = outcome.headers
    assert list(read_limits(dict(fields))) == ["all"]
    assert twin.ask(RouteLimit("search:{user}", cost=2), outcome) is None
    assert fields is outcome.headers  # whoever writes them has this list
    limits = read_limits(dict(fields))
    assert {name: (each.q, each.r) for name, each in limits.items()} == {"all": (100, 99), "search": (5, 3)}
    assert twin.counts("search") == {"matched": 1, "acquired": 1}
    assert twin.enforcer.statistics().unmatched == 0
    assert (twin.left("search:ann"), twin.left("all")) == (3, 99)


def test_a_refusal_is_that_of_the_rule_and_its_fields_are_those_of_the_response(make: Make) -> None:
    twin = make(ALL, SEARCH)
    outcome = twin.admit(user="ann")
    assert twin.ask(RouteLimit("search:{user}", cost=5), outcome) is None
    outcome = twin.admit(user="ann")
    refusal = twin.ask(RouteLimit("search:{user}"), outcome)
    assert refusal is not None
    assert (refusal.status, refusal.rules, refusal.key) == (429, ("search",), "search:ann")
    assert json.loads(refusal.body)["violated-policies"] == ["search"]
    fields = dict(outcome.headers)
    assert list(read_limits(fields)) == ["search"]
    assert fields[b"cache-control"] == b"no-store"
    assert b"content-type" not in fields
    assert twin.left("all") == 98  # the rules that matched were charged before
    twin.clock.pass_by(int(fields[b"retry-after"]))
    assert twin.ask(RouteLimit("search:{user}"), twin.admit(user="ann")) is None


@pytest.mark.parametrize("cost", [1, lambda request: 1])
def test_what_a_route_asks_for_is_not_waited_for(make: Make, cost: Any) -> None:
    """No time passes here: one that waited would wait for ever."""
    twin = make(Rule("soon", "2/s burst 1", key="soon", match=None))
    told = [twin.ask(RouteLimit("soon", cost=cost), twin.admit()) for _ in range(2)]
    assert [refusal and refusal.rules for refusal in told] == [None, ("soon",)]


def test_without_a_cost_or_charge_of_its_own_a_route_has_those_of_the_rule(make: Make) -> None:
    twin = make(Rule("search", "9/hour", key="search", match=None, cost=3, charge=[200]))
    outcome = twin.admit()
    twin.ask(RouteLimit("search"), outcome)
    assert twin.left("search") == 6
    twin.settle(outcome, Response(404))
    assert twin.left("search") == 9


def test_a_route_says_cost_and_charge_by_functions(make: Make) -> None:
    limit = RouteLimit("search:{user}", cost=lambda request: len(request.path), charge=lambda response: response.sent)
    twin = make(ALL, SEARCH)
    outcome = twin.admit("GET", "/abc", user="ann")
    twin.ask(limit, outcome)
    assert twin.left("search:ann") == 1
    twin.settle(outcome, Response(200, sent=2))
    assert twin.left("search:ann") == 3


def test_what_was_charged_before_a_refusal_is_settled_all_the_same(make: Make) -> None:
    twin = make(Rule("login", "5/hour", key="login", charge=[200]), SEARCH)
    outcome = twin.admit()
    assert twin.ask(RouteLimit("search:{user}"), outcome) is not None
    twin.settle(outcome, Response(403))
    assert twin.left("login") == 5


@pytest.mark.parametrize(
    ("identity", "told", "parameters", "key"),
    [
        ({"user": "ann"}, {}, {}, "search:ann"),
        ({"user": "ann"}, {"user": "bob"}, {"user": "eve"}, "search:bob"),
        ({"user": "ann"}, {}, {"user": "eve"}, "search:ann"),
        ({}, {}, {"user": 7}, "search:7"),
        (FailedIdentity({}, OSError("away")), {"user": "bob"}, {}, "search:bob"),
    ],
)
def test_the_route_knows_best_who_asks_and_its_path_least(
    make: Make, identity: Any, told: Any, parameters: Any, key: str
) -> None:
    twin = make(SEARCH)
    outcome = twin.admit_request(Request("GET", "/", identity))
    assert twin.ask(RouteLimit("search:{user}"), outcome, told, parameters) is None
    assert twin.left(key) == 4


@pytest.mark.parametrize(("identity", "status"), [({}, 403), (FailedIdentity({}, OSError("away")), 503)])
def test_a_route_without_a_key_is_refused_unless_told_otherwise(make: Make, identity: Any, status: int) -> None:
    for setting, expected in (("refuse", status), ("admit", None)):
        twin = make(SEARCH, unidentified=setting)
        refusal = twin.ask(RouteLimit("search:{user}"), twin.admit_request(Request("GET", "/", identity)))
        assert (refusal.status if refusal else None) == expected


def test_a_key_that_no_rule_has_is_an_error_at_the_start_and_a_503_later_told_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    twin = make(ALL, SEARCH)
    with pytest.raises(RulesError, match=r"did you mean 'search:\{user\}'"):
        twin.enforcer.check(RouteLimit("serch:{user}"))
    for _ in range(2):
        outcome = twin.admit(user="ann")
        refusal = twin.ask(RouteLimit("serch:{user}"), outcome)
        assert refusal is not None
        assert refusal.status == 503
        assert dict(outcome.headers)[b"retry-after"] == b"1"
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "'serch:{user}'" in record.getMessage()


@pytest.mark.parametrize("arguments", [{"key": "a b"}, {"key": "a", "cost": -1}, {"key": "a", "charge": "401"}])
def test_a_limit_that_cannot_work_is_an_error_where_it_is_written(arguments: Any) -> None:
    with pytest.raises(RulesError):
        RouteLimit(**arguments)


def test_a_function_asks_for_each_limit_that_was_noted_on_it() -> None:
    def view() -> None: ...

    limits = RouteLimit("a"), RouteLimit("b")
    for each in limits:
        mark(view, each)
    assert (marks_of(view), marks_of(mark)) == (limits, ())


UNREAD = FailedIdentity({"ip": "192.0.2.1"}, OSError("away"))


@pytest.mark.parametrize(
    ("request_knows", "route_knows"), [({"user": "ann"}, {"user": "bob"}), (UNREAD, {"user": "bob"})]
)
def test_a_route_that_knows_who_asks_is_believed(request_knows: Any, route_knows: Any) -> None:
    assert known_of(request_knows, route_knows)["user"] == "bob"


@pytest.mark.parametrize(("request_knows", "route_knows"), [({}, UNREAD), (UNREAD, {}), (UNREAD, NOTHING)])
def test_of_whom_nobody_can_say_who_asks_a_key_has_no_value(request_knows: Any, route_knows: Any) -> None:
    known = known_of(request_knows, route_knows)
    assert known["ip"] == "192.0.2.1"
    with pytest.raises(OSError, match="away"):
        known["user"]


def test_a_store_that_is_away_is_decided_by_the_rule(make: Make) -> None:
    closed, opened = (Rule(name, "5/hour", key=name, match=None, on_failure=name) for name in ("closed", "open"))
    twin = make(ALL, closed, opened)
    twin.store.away |= {"closed", "open"}
    outcome = twin.admit()
    assert twin.ask(RouteLimit("open"), outcome) is None
    assert list(read_limits(dict(outcome.headers))) == ["all"]
    refusal = twin.ask(RouteLimit("closed"), outcome)
    assert refusal is not None
    assert refusal.status == 503


def test_a_request_whose_route_asks_is_not_unmatched(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    twin = make(SEARCH)
    twin.admit(user="ann")
    outcome = twin.admit(user="ann")
    for _ in range(2):
        twin.ask(RouteLimit("search:{user}"), outcome)
    assert twin.enforcer.statistics().unmatched == 1
    assert [each.getMessage() for each in caplog.records] == [
        "no rule matches GET '/': it is not limited, unless its route asks for a rule"
    ]


def test_a_rule_that_no_route_asks_for_is_told_of_after_hours(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    twin = make(ALL, SEARCH)
    for seconds in 0.0, 7199.5, 0.5:
        assert not caplog.records
        twin.clock.pass_by(seconds)
        twin.admit()
    assert [each.getMessage() for each in caplog.records] == [
        "rule 'search' matched none of 3 requests: does a route ask for its key?"
    ]
