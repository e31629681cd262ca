"""What a request is charged is remembered by the values in its keys, and by nothing else."""

from collections.abc import Mapping, Sequence

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.integrations.enforcement import Enforcer
from batchlimit.integrations.enforcement.plan import Bill, Plans
from batchlimit.integrations.headers import Fields, Prepared
from batchlimit.rules import Request, Rule, Rules
from batchlimit.rules.key import NoKey
from tests.garbage import kept
from tests.integrations.enforcers import Make

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
        self._plans = Plans({})
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


def test_requests_with_the_same_values_share_a_bill_whatever_their_path() -> None:
    planned = Planned()
    bills = {planned.bill(path, {"user": "ann"}) for path in ("/a", "/b")}
    assert len(bills) == 1
    assert bills.pop().costs == {"user:ann": 1, "all": 2}


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
    plan, fields, identity = Plans({}).of(RULES.templates("GET", "/")), Fields(secret=b"s"), {"user": "ann"}
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


def test_who_comes_while_another_quota_is_written_is_told_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, fields, identity = Plans({}).of(RULES.templates("GET", "/")), Fields(secret=b"s"), {"user": "ann"}
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
