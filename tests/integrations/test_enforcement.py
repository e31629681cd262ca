"""What becomes of a request by the rules that apply to it, whichever framework it came through."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from batchlimit import Decision, FailurePolicy, Quota, RateLimiter, StoreUnavailable
from batchlimit.integrations.address import FailedIdentity
from batchlimit.integrations.enforcement import Enforcer, Response, RouteLimit
from batchlimit.integrations.enforcement.charging import Underway
from batchlimit.integrations.enforcement.plan import Bill, Plans
from batchlimit.integrations.headers import Fields, Prepared
from batchlimit.rules import Request, Rule, Rules, RulesError
from batchlimit.rules.key import NoKey
from batchlimit.testing import fake_limiter
from tests.garbage import kept
from tests.integrations.enforcers import Make
from tests.integrations.structured import read_limits

USER = Rule("user", "2/hour", key="user:{user}", match="/api/*")
ALL = Rule("all", "100/hour", key="all")


def test_a_request_is_charged_to_every_rule_that_matches(make: Make) -> None:
    twin = make(USER, ALL)
    outcome = twin.admit("GET", "/api/x", user="ann")
    assert outcome.refusal is None
    limits = read_limits(dict(outcome.headers))
    assert {name: (each.q, each.r) for name, each in limits.items()} == {"user": (2, 1), "all": (100, 99)}
    twin.admit("GET", "/other", user="ann")
    assert (twin.left("user:ann"), twin.left("all")) == (1, 98)
    assert twin.counts("user") == {"matched": 1, "acquired": 1}
    assert twin.counts("all") == {"matched": 2, "acquired": 2}


def test_a_request_that_one_rule_refuses_is_charged_to_none(make: Make) -> None:
    twin = make(USER, ALL)
    for _ in range(2):
        assert twin.admit("GET", "/api/x", user="ann").refusal is None
    refusal = twin.refused("GET", "/api/x", user="ann")
    assert (refusal.status, refusal.rules, refusal.key) == (429, ("user",), "user:ann")
    fields = dict(refusal.headers)
    assert int(fields[b"retry-after"]) in (1800, 1801)  # a bucket counts in small steps, and rounds up
    assert fields[b"cache-control"] == b"no-store"
    assert fields[b"content-type"] == b"application/problem+json"
    assert read_limits(fields)["user"][:4] == (2, 3600, 0, 1800)
    body = json.loads(refusal.body)
    assert (body["status"], body["violated-policies"]) == (429, ["user"])
    assert twin.left("all") == 98
    assert twin.counts("user") == {"matched": 3, "acquired": 2, "refused": 1}


@pytest.mark.parametrize(("timeout", "waits"), [(0.0, []), (1.0, [1.0]), (None, [None])])
def test_a_request_waits_as_long_as_it_says(timeout: Any, waits: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    limiter, waited = fake_limiter("9/s", refuses={"all": 0.5}), list[Any]()
    monkeypatch.setattr(limiter, "acquire_all", lambda costs, timeout: waited.append(timeout))
    enforcer = Enforcer(limiter, Rules([Rule("all", "9/s", key="all")]))
    refusal = enforcer.admit(Request("GET", "/"), timeout=timeout).refusal
    assert (waited, refusal is None) == (waits, bool(waits))


def test_a_request_waits_for_no_tokens_unless_it_says_so(make: Make) -> None:
    """No time passes here: one that waited would wait for ever."""
    twin = make(Rule("all", "2/s burst 1", key="all"))
    assert [twin.admit().refusal is None for _ in range(2)] == [True, False]


def test_a_request_that_waits_is_admitted_when_tokens_have_come() -> None:
    """In real time, 100 tokens a second: no assertion tells how long it took."""
    rules = Rules([Rule("all", "100/s burst 1", key="all", charge=lambda response: response.status == 200)])
    with RateLimiter.from_url("memory://", rules.quotas) as limiter:
        enforcer = Enforcer(limiter, rules)
        outcomes = [enforcer.admit(Request("GET", "/"), timeout=None) for _ in range(5)]
        assert [each.refusal for each in outcomes] == [None] * 5
        assert all(len(each.charges) == 1 and each.headers for each in outcomes)
        nothing_left = Decision(True, 1, 0, 0.0, 0.01, "store", rules.quotas["all"])
        assert [each.decided and each.decided["all"] for each in outcomes[1:]] == [nothing_left] * 4
        assert enforcer.statistics().rules["all"].refused == 0


def test_rules_that_share_a_key_add_up_their_costs(make: Make) -> None:
    twin = make(
        Rule("read", "10/hour", key="pool:{user}", match="/api/*", cost=3),
        Rule("all", "10/hour", key="pool:{user}", match="*", cost=2),
    )
    assert twin.admit("GET", "/api/x", user="ann").refusal is None
    assert twin.left("pool:ann") == 5
    twin.admit("GET", "/api/x", user="ann")
    refusal = twin.refused("GET", "/", user="ann")
    assert refusal.rules == ("all",)


def test_a_request_that_no_rule_matches_is_admitted_and_told_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    twin = make(USER)
    for _ in range(3):
        outcome = twin.admit("GET", "/elsewhere")
        assert (outcome.refusal, outcome.headers) == (None, [])
    statistics = twin.enforcer.statistics()
    assert (statistics.requests, statistics.unmatched) == (3, 3)
    assert [each.getMessage() for each in caplog.records] == ["no rule matches GET '/elsewhere': it is not limited"]


def test_an_identity_that_raises_is_a_503_and_no_500(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    twin = make(USER, Rule("ip", "9/hour", key="ip:{ip}"))
    identity = FailedIdentity({"ip": "192.0.2.1"}, OSError("the directory is away"))
    assert twin.admit_request(Request("GET", "/", identity)).refusal is None
    refusal = twin.admit_request(Request("GET", "/api/x", identity)).refusal
    assert refusal is not None
    assert (refusal.status, refusal.retry_after) == (503, 1.0)
    assert isinstance(refusal.error, OSError)
    assert "the directory is away" in caplog.text
    assert "the directory is away" not in refusal.body.decode()


def test_an_identity_that_raises_a_key_error_lets_nobody_choose_whose_key_it_is(make: Make) -> None:
    twin = make(Rule("user", "2/hour", key="user:{user}", match="/users/{user}/*"))
    identity = FailedIdentity({"ip": "192.0.2.1"}, KeyError("authorization"))
    refusal = twin.admit_request(Request("GET", "/users/bob/items", identity)).refusal
    assert refusal is not None
    assert refusal.status == 503
    assert twin.left("user:bob") == 2


@pytest.mark.parametrize("cost", [lambda _: 1 / 0, lambda _: -1, lambda _: True, lambda _: None])
def test_a_cost_that_cannot_be_told_is_as_no_key(make: Make, cost: Any) -> None:
    twin = make(Rule("all", "100/hour", key="all", cost=cost))
    refusal = twin.refused()
    assert refusal.status == 503
    assert twin.counts("all") == {"matched": 1, "no_key": 1, "faults": 1}
    assert twin.left("all") == 100


def test_a_cost_beyond_the_burst_never_fits_and_says_no_time(make: Make) -> None:
    twin = make(ALL, Rule("big", "5/hour", key="big", cost=lambda _: 6))
    refusal = twin.refused()
    assert (refusal.status, refusal.rules) == (429, ("big",))
    assert b"retry-after" not in dict(refusal.headers)
    assert read_limits(dict(refusal.headers))["big"].r == 0
    assert twin.left("all") == 100


def test_costs_of_one_key_that_never_fit_together_are_refused(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    twin = make(*(Rule(name, "5/hour", key="big", cost=lambda _: 3) for name in ("one", "other")))
    refusal = twin.refused()
    assert (refusal.status, refusal.rules) == (429, ("one", "other"))
    assert b"retry-after" not in dict(refusal.headers)
    assert twin.left("big") == 5
    assert not caplog.records


def test_a_rule_in_shadow_is_charged_and_counted_and_refuses_nobody(make: Make) -> None:
    twin = make(ALL, Rule("trial", "2/hour", key="trial:{user}", mode="shadow"))
    for _ in range(3):
        outcome = twin.admit(user="ann")
        assert outcome.refusal is None
        assert list(read_limits(dict(outcome.headers))) == ["all"]
    assert twin.admit().refusal is None
    assert twin.counts("trial") == {"matched": 4, "acquired": 2, "shadow_refused": 1, "no_key": 1}
    assert twin.left("all") == 96


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_a_rule_whose_key_an_operator_has_put_in_shadow_mode_counts_as_one_in_shadow(make: Make, mode: Any) -> None:
    rule = Rule("trial", "2/hour", key="trial", mode=mode, charge=lambda response: response.status == 401)
    twin = make(ALL, rule, mode={"trial": "shadow"})
    outcomes = [twin.admit() for _ in range(3)]
    assert [each.refusal for each in outcomes] == [None] * 3
    assert twin.counts("trial") == {"matched": 3, "acquired": 2, "shadow_refused": 1}
    for each in outcomes:
        twin.settle(each, Response(401))
    assert (twin.left("trial"), twin.left("all")) == (0, 97)


def test_what_was_not_charged_in_shadow_mode_is_not_given_back_when_a_closed_rule_refuses(make: Make) -> None:
    far = Rule("far", "10/hour", key="far", on_failure="closed")
    rules = Rule("trial", "2/hour", key="trial"), far
    twin = make(*rules, mode={"trial": "shadow"}, on_failure=FailurePolicy.local(2))
    twin._do(twin.limiter.acquire, "trial", 2)
    twin.store.away.add("far")
    refusal = twin.refused()
    assert (refusal.status, twin._do(twin.limiter.decide, "trial").source) == (503, "shadow")


def test_nobody_waits_for_a_response_to_a_rule_in_shadow_mode(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(*_: Any) -> Any:
        pytest.fail("a request waits")

    monkeypatch.setattr(Underway, "outcome", outcome)
    twin = make(ALL, Rule("guesses", "1/hour", key="guesses", charge=[401], mode="shadow"))
    assert [twin.admit().refusal for _ in range(2)] == [None, None]
    assert twin.counts("guesses") == {"matched": 2, "acquired": 1, "shadow_refused": 1}


@pytest.mark.parametrize("mode", ["enforce", "shadow"])  # of the limiter
def test_what_refuses_in_shadow_mode_leaves_the_others_to_be_charged_at_once(make: Make, mode: Any) -> None:
    twin = make(
        Rule("trial", "1/hour", key="trial", mode="shadow"),
        ALL,
        Rule("much", "1/hour", key="much", cost=lambda _: 2, mode="shadow"),
        Rule("one", "2/hour", key="one"),
        mode={"trial": mode, "much": mode},
    )
    assert [twin.admit().refusal for _ in range(2)] == [None, None]
    assert twin.counts("trial") == {"matched": 2, "acquired": 1, "shadow_refused": 1}
    assert twin.counts("much") == {"matched": 2, "shadow_refused": 2, "faults": 2}
    refusal = twin.refused()
    assert refusal.rules == ("one",)
    assert (twin.left("all"), twin.left("one")) == (98, 0)


@pytest.mark.parametrize(
    ("charge", "left"),
    [
        (lambda r: r.status == 401, 8),
        (lambda r: r.status == 200, 10),
        (lambda r: 1, 9),
        (lambda r: 0, 10),
        (lambda r: 7, 3),
        (lambda r: 1 / 0, 8),  # nobody knows: what was charged stays charged
        (lambda r: "much", 8),
    ],
)
def test_the_response_decides_what_is_charged(make: Make, charge: Any, left: int) -> None:
    twin = make(Rule("login", "10/hour", key="login", cost=2, charge=charge))
    outcome = twin.admit()
    assert twin.left("login") == 8  # until it is known
    twin.settle(outcome, Response(401))
    assert twin.left("login") == left
    twin.settle(outcome, Response(200))
    assert twin.left("login") == left  # a second time changes nothing


def test_what_a_response_charges_more_is_a_debt_where_nothing_is_left(make: Make) -> None:
    twin = make(Rule("login", "2/hour", key="login", cost=2, charge=lambda _: 3))
    twin.settle(twin.admit(), Response(200))
    refusal = twin.refused()  # one is owed, and two are the cost: three of 1,800 s
    assert refusal.retry_after == pytest.approx(5400, abs=5)


AWAY = [
    (None, "closed", 503),
    ("closed", "closed", 503),
    ("open", "closed", None),
    (None, "open", None),
    ("closed", "open", 503),
    ("open", "open", None),
    (FailurePolicy.local(2), FailurePolicy.local(2), None),
    ("closed", FailurePolicy.local(2), 503),
]


@pytest.mark.parametrize(("of_rule", "of_limiter", "status"), AWAY)
def test_a_rule_decides_while_its_bucket_is_away(make: Make, of_rule: Any, of_limiter: Any, status: int | None) -> None:
    twin = make(Rule("far", "10/hour", key="far", on_failure=of_rule), ALL, on_failure=of_limiter)
    twin.store.away.add("far")
    for _ in range(5):  # the circuit opens meanwhile
        refusal = twin.admit().refusal
        assert (refusal.status if refusal else None) == status
        if refusal:
            assert dict(refusal.headers)[b"retry-after"] == b"1"
            assert json.loads(refusal.body)["type"].endswith("#temporary-reduced-capacity")
    assert twin.left("all") == (100 if status else 95)  # the others hold all the same


def test_a_store_that_is_away_as_a_whole_concerns_each_rule(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = make(Rule("lax", "10/hour", key="lax", on_failure="open"), ALL)
    errors, decide_all = [StoreUnavailable("away")], twin.limiter.decide_all

    def away_once(costs: Any) -> Any:
        if errors:
            raise errors.pop()
        return decide_all(costs)

    monkeypatch.setattr(type(twin.limiter), "decide_all", lambda _, costs: away_once(costs))
    first, second = twin.admit().refusal, twin.admit().refusal
    assert (first and first.status, second) == (503, None)
    assert (twin.counts("lax"), twin.counts("all")["store_away"]) == ({"matched": 2, "acquired": 1}, 1)


def test_a_store_that_is_away_is_counted_and_told_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    twin = make(Rule("far", "10/hour", key="far", on_failure="open"))
    twin.store.away.add("far")
    for _ in range(4):
        twin.admit()
    assert twin.counts("far") == {"matched": 4, "store_away": 4}
    assert len([each for each in caplog.records if "'far'" in each.getMessage()]) == 1


def test_a_closed_rule_in_shadow_refuses_nobody_though_its_limiter_decides_without_the_store(make: Make) -> None:
    trial = Rule("trial", "2/hour", key="trial", on_failure="closed", mode="shadow")
    twin = make(ALL, trial, on_failure=FailurePolicy.local(2))
    twin.store.away.add("trial")
    assert twin.admit().refusal is None
    assert twin.left("all") == 99


# What a request is charged is remembered by the values in its keys, and by nothing else
RULES = Rules(
    [
        Rule("user", "9/s", key="user:{user}"),
        Rule("item", "9/s", key="item:{id}", match=["/items/{id}", "/all/{id}/*"]),
        Rule("all", "9/s", key="all", cost=2),
    ]
)


class Planned:
    """Plans of one application."""

    def __init__(self) -> None:
        self._plans = Plans(RULES)
        self.bills = self._plans._bills

    def bill(self, path: str, identity: Mapping[str, object]) -> Bill:
        plan = self._plans.of(RULES.templates("GET", path))
        assert plan is not None
        plan.remember(bill := plan.bill(identity), identity)
        return bill


def test_only_what_memory_paid_is_remembered() -> None:
    """Users seen once would leave thousands of objects, which the garbage collector looks at for 50 ms each second."""
    rules = Rules([Rule("user", "9/minute", key="user:{user}"), Rule("all", "9000/s", key="all")])
    with RateLimiter.from_url("memory://", rules.quotas) as limiter, kept(Bill) as left:
        enforcer = Enforcer(limiter, rules)
        for number in range(20):
            assert enforcer.admit(Request("GET", "/", {"user": str(number)})).refusal is None
    assert left == []
    rules = Rules([Rule("user", "9000/s", key="user:{user}")])
    with RateLimiter.from_url("memory://", rules.quotas) as limiter:
        enforcer = Enforcer(limiter, rules)
        bills = [enforcer.admit(Request("GET", "/", {"user": "ann"})).bill for _ in range(50)]
    assert bills[-1] is bills[-2]
    assert enforcer.statistics().rules["user"].matched == 50


VALUES: list[object] = ["ann", "1", 1, True, None, "", [], "x" * 300, "\udcff", 2.0]


@pytest.mark.parametrize("first", VALUES, ids=repr)
@pytest.mark.parametrize("then", VALUES, ids=repr)
def test_each_value_has_the_key_that_it_has_alone(first: object, then: object) -> None:
    planned = Planned()
    for value in (first, then, first):
        request = Request("GET", "/", {"user": value})
        applied, unmade = RULES.applicable(request)
        if unmade:
            with pytest.raises((NoKey, TypeError)):
                planned.bill("/", request.identity)
        else:
            assert [key for _, key, _ in planned.bill("/", request.identity).charged] == [each.key for each in applied]


def test_a_path_parameter_is_a_value_and_the_identity_comes_before_it() -> None:
    planned = Planned()
    same = planned.bill("/items/7", {"user": "ann"})
    assert planned.bill("/all/7/of/them", {"user": "ann"}) is same
    assert planned.bill("/items/8", {"user": "ann", "id": "7"}).costs == same.costs
    assert planned.bill("/items/8", {"user": "ann"}).costs == {"user:ann": 1, "item:8": 1, "all": 2}
    with pytest.raises(NoKey):
        planned.bill("/items/8", {"user": "ann", "id": None})


def test_the_memory_is_bounded_in_number_and_in_length() -> None:
    planned = Planned()
    for number, remembered in (4095, 4095), (4096, 4096), (4097, 1):
        while len(planned.bills) < min(number, 4096):
            planned.bill("/", {"user": str(len(planned.bills))})
        planned.bill("/", {"user": "x" * (256 if number == 4097 else 257)})
        assert len(planned.bills) == remembered


def test_rules_that_take_a_field_of_one_name_from_other_parts_of_the_path_have_keys_of_their_own(make: Make) -> None:
    rules = [
        Rule("first", "9/hour", key="first:{id}", match="/a/{id}/*"),
        Rule("second", "9/hour", key="second:{id}", match="/a/{of}/b/{id}"),
    ]
    admitted = make(*rules).admit("GET", "/a/1/b/2")
    assert [key for _, key, _ in admitted.bill.charged] == ["first:1", "second:2"]
    refused = make(*rules, Rule("all", "9/hour", key="all:{id}")).admit("GET", "/a/1/b/2").refusal
    assert refused is not None
    assert (refused.status, refused.rules) == (403, ("all",)), "the path of another rule's pattern says nothing to it"


def test_a_bill_tells_the_quota_that_holds_whether_it_is_remembered_or_not() -> None:
    plan, fields, identity = Plans(RULES).of(RULES.templates("GET", "/")), Fields(secret=b"s"), {"user": "ann"}
    assert plan is not None
    own, other, lone = Quota.parse("9/s"), Quota.parse("5/s; 90/m"), Quota.parse("7/m")
    bill = plan.bill(identity)
    for quota, binding in (own, None), (other, 1), (other, 1), (other, 0), (lone, None), (lone, None), (own, None):
        for each in bill, plan.bill(identity):
            left = dict.fromkeys(each.costs, (3, quota, binding))
            told = [(rule.name, quota, key, 3, binding) for rule, key, _ in each.charged]
            assert each.fields(left, fields) == fields.of(told)
        plan.remember(bill, identity)
    assert plan.bill(identity) is bill


def test_a_request_while_another_quota_is_written_is_told_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, fields, identity = Plans(RULES).of(RULES.templates("GET", "/")), Fields(secret=b"s"), {"user": "ann"}
    assert plan is not None
    bill, held = plan.bill(identity), Quota.parse("0/s")
    bill.fields(dict.fromkeys(bill.costs, (3, None, None)), fields)
    plan.remember(bill, identity)
    left, found = dict.fromkeys(bill.costs, (0, held, None)), []

    def keyed(prepared: Prepared, keys: Sequence[str]) -> tuple[bytes, bytes]:
        monkeypatch.undo()
        found.append(bill.fields(left, fields))  # by another thread
        return prepared.keyed(keys)

    monkeypatch.setattr(Prepared, "keyed", keyed)
    found.append(bill.fields(left, fields))
    assert found == [fields.of([(rule.name, held, key, 0, None) for rule, key, _ in bill.charged])] * 2


# What a route asks for, beside the rules that match its requests
SEARCH = Rule("search", "5/hour", key="search:{user}", match=None)


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
def test_a_route_knows_best_and_its_path_least(make: Make, identity: Any, told: Any, parameters: Any, key: str) -> None:
    twin = make(SEARCH)
    outcome = twin.admit_request(Request("GET", "/", identity))
    assert twin.ask(RouteLimit("search:{user}"), outcome, told, parameters) is None
    assert twin.left(key) == 4


@pytest.mark.parametrize("cost", [1, lambda request: 1])
def test_what_a_route_asks_for_is_not_waited_for(make: Make, cost: Any) -> None:
    """No time passes here: one that waited would wait for ever."""
    twin = make(Rule("soon", "2/s burst 1", key="soon", match=None))
    told = [twin.ask(RouteLimit("soon", cost=cost), twin.admit()) for _ in range(2)]
    assert [refusal and refusal.rules for refusal in told] == [None, ("soon",)]


@pytest.mark.parametrize("arguments", [{"key": "a b"}, {"key": "a", "cost": -1}, {"key": "a", "charge": "401"}])
def test_a_limit_that_cannot_work_is_an_error_where_it_is_written(arguments: Any) -> None:
    with pytest.raises(RulesError):
        RouteLimit(**arguments)


def test_a_route_says_cost_and_charge_by_functions(make: Make) -> None:
    limit = RouteLimit("search:{user}", cost=lambda request: len(request.path), charge=lambda response: response.sent)
    twin = make(ALL, SEARCH)
    outcome = twin.admit("GET", "/abc", user="ann")
    twin.ask(limit, outcome)
    assert twin.left("search:ann") == 1
    twin.settle(outcome, Response(200, sent=2))
    assert twin.left("search:ann") == 3


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
