"""A log replayed through rules: by reservoirs in virtual time, and by arithmetic where no instance can be refused."""

import math
import random
from collections.abc import Iterable, Iterator

import pytest

from batchlimit.cli.simulate.log import Line
from batchlimit.cli.simulate.replay import Replay, Spread
from batchlimit.cli.simulate.result import Result
from batchlimit.cli.simulate.screen import BucketTrust, CallSample, Screen
from batchlimit.quota.quota import Quota
from batchlimit.rules import Rule, Rules
from tests.depth import depth

BEGUN = 1_800_000_000.5


def line(at: float, path: str = "/", ip: str = "10.0.0.1", user: str = "", status: int = 200) -> Line:
    return BEGUN + at, "GET", path, ip, user, status


def steady(rate: float, seconds: float, **rest: str) -> list[Line]:
    return [line(n / rate, **rest) for n in range(round(rate * seconds))]  # type: ignore[arg-type]


def replayed(rules: Rule | list[Rule], log: Iterable[Line], instances: int = 4, *, is_exact: bool = False) -> Result:
    one = Rules(rules if isinstance(rules, list) else [rules])
    return Replay(one, instances, is_exact=is_exact).run(log)


EXACT = pytest.mark.parametrize("is_exact", [False, True], ids=["screened", "exact"])


@EXACT
@pytest.mark.parametrize("instances", [1, 4, 20])
def test_a_fleet_admits_what_the_quota_allows_and_never_more(instances: int, is_exact: bool) -> None:
    rule = Rule("all", "100/s burst 200", key="all")
    result = replayed(rule, steady(400.0, 30.0), instances, is_exact=is_exact)
    assert result.requests == 12_000
    assert 0.97 * (200 + 100 * 30) <= result.admitted <= 200 + 100 * 30


@EXACT
def test_nothing_is_refused_below_the_quota(is_exact: bool) -> None:
    result = replayed(Rule("all", "100/s burst 200", key="all"), steady(50.0, 60.0), is_exact=is_exact)
    assert result.admitted == 3000


@EXACT
def test_a_long_key_is_replayed_as_any_other(is_exact: bool) -> None:
    def figures(user: str) -> list[int]:
        log = steady(20.0, 120.0, user=user)
        result = replayed(Rule("users", "10/s burst 20", key="user:{user}"), log, 3, is_exact=is_exact)
        return [result.admitted, result.calls]

    assert figures("x" * 500) == pytest.approx(figures("ann"), rel=0.1)  # memory finds it by another way


@EXACT
def test_each_key_has_its_bucket(is_exact: bool) -> None:
    rule = Rule("users", "5/minute", key="user:{user}")
    log = sorted(steady(10.0, 6.0, user="ann") + steady(0.05, 60.0, user="bob"))
    result = replayed(rule, log, is_exact=is_exact)
    assert result.keys["users", "user:bob"].refused == 0
    assert 5 <= result.keys["users", "user:ann"].admitted <= 6


@EXACT
def test_a_request_is_charged_to_all_rules_or_none(is_exact: bool) -> None:
    rules = [Rule("one", "2/hour", key="one", match="/*"), Rule("all", "100/hour", key="all", match="/*")]
    result = replayed(rules, steady(1.0, 20.0), is_exact=is_exact)
    assert (result.admitted, result.of_rule("one").refused) == (2, 18)
    assert (result.of_rule("all").admitted, result.of_rule("all").refused) == (2, 0)


@EXACT
def test_a_shadow_rule_refuses_nobody(is_exact: bool) -> None:
    rule = Rule("trial", "2/hour", key="all", mode="shadow")
    result = replayed(rule, steady(1.0, 20.0), is_exact=is_exact)
    assert (result.admitted, result.of_rule("trial").admitted, result.of_rule("trial").refused) == (20, 2, 18)


@EXACT
def test_what_a_status_does_not_charge_goes_back(is_exact: bool) -> None:
    rule = Rule("login", "3/hour", key="login:{ip}", charge=[401])
    log = [line(float(n), status=401 if n % 2 else 200) for n in range(20)]
    result = replayed(rule, log, instances=1, is_exact=is_exact)
    assert [result.of_rule("login").admitted, result.of_rule("login").refused] == [6, 14]


def test_what_goes_back_goes_to_where_it_was_charged() -> None:
    """Refunds of what one plain bucket had decided went to limiters, which called the store for each."""
    rule = Rule("login", "20/s", key="login:{ip}", charge=[401])
    log = [line(n / 60, status=401 if n % 10 else 200) for n in range(3600)]
    screened, exact = (replayed(rule, log, is_exact=is_exact) for is_exact in (False, True))
    assert screened.asked < 0.75 * screened.requests
    assert screened.admitted == pytest.approx(exact.admitted, rel=0.02)
    assert screened.calls == pytest.approx(exact.calls, rel=0.25)


@EXACT
def test_a_quota_of_nothing_refuses_all(is_exact: bool) -> None:
    assert replayed(Rule("all", "0/s", key="all"), steady(1.0, 5.0), is_exact=is_exact).admitted == 0


@EXACT
def test_two_bandwidths_both_count(is_exact: bool) -> None:
    result = replayed(Rule("all", "10/s; 30/hour", key="all"), steady(2.0, 60.0), is_exact=is_exact)
    assert 30 <= result.admitted <= 31


def test_requests_without_a_key_pass_and_are_counted() -> None:
    result = replayed(Rule("users", "1/hour", key="user:{user}"), steady(1.0, 5.0))
    assert (result.admitted, result.of_rule("users").without_key) == (5, 5)


def test_requests_that_no_rule_matches_pass() -> None:
    assert replayed(Rule("api", "1/hour", key="all", match="/api/*"), steady(1.0, 5.0)).admitted == 5


def test_paths_are_matched_without_their_query_and_decoded() -> None:
    rule = Rule("items", "1/hour", key="item:{id}", match="/items/{id}")
    log = [line(0.0, path="/items/a%62c?x=1"), line(1.0, path="/items/abc")]
    assert list(replayed(rule, log).keys) == [("items", "item:abc")]


@pytest.mark.parametrize("rule", [Rule("x", "9/s", key="all", cost=len), Rule("x", "9/s", key="all", charge=bool)])
def test_what_only_a_request_or_a_response_can_tell_is_refused_by_name(rule: Rule) -> None:
    with pytest.raises(ValueError, match=r"rule 'x'.*function"):
        replayed(rule, steady(1.0, 5.0))


def test_arithmetic_and_reservoirs_admit_the_same() -> None:
    chance = random.Random(3)
    users, at, log = [f"user{n}" for n in range(40)], 0.0, []
    for _ in range(depth(4000, 8000)):
        at += chance.expovariate(80.0)
        user = users[min(39, int(chance.expovariate(0.15)))]
        log.append(line(at, user=user))
    rule = Rule("users", "3/s burst 12", key="user:{user}")
    screened, exact = (replayed(rule, log, is_exact=is_exact) for is_exact in (False, True))
    assert 0 < screened.asked < len(log) == exact.asked
    assert screened.admitted == pytest.approx(exact.admitted, rel=0.01)
    assert screened.calls == pytest.approx(exact.calls, rel=0.25)


def uneven(quota: str, *, is_exact: bool) -> Result:
    """Two busy users, at three times and at half of 20/s."""
    log = sorted(steady(60.0, 60.0, user="ann") + steady(11.0, 60.0, user="bob"))
    return replayed(Rule("users", quota, key="user:{user}"), log, is_exact=is_exact)


@pytest.mark.parametrize("quota", ["20/s", "20/s burst 2"])
def test_one_bucket_decides_refusals_where_reservoirs_waste_little(quota: str) -> None:
    screened, exact = (uneven(quota, is_exact=is_exact) for is_exact in (False, True))
    assert screened.asked < 0.3 * screened.requests
    assert screened.admitted == pytest.approx(exact.admitted, rel=0.01)
    assert screened.calls == pytest.approx(exact.calls, rel=0.1)


def test_one_bucket_also_decides_for_requests_that_other_rules_count() -> None:
    rules = [Rule("users", "20/s", key="user:{user}"), Rule("all", "900/s", key="all", match="/x")]
    chance = random.Random(5)
    paths = ["/items", "/items", "/x"]
    log = [line((n + chance.random()) / 60, chance.choice(paths), user="ann") for n in range(3600)]
    screened, exact = (replayed(rules, log, is_exact=is_exact) for is_exact in (False, True))
    assert exact.asked == len(log) + sum(path == "/x" for _, _, path, *_ in log)
    assert screened.asked < 0.3 * exact.asked
    assert screened.admitted == pytest.approx(exact.admitted, rel=0.01)
    assert screened.of_rule("all").admitted == pytest.approx(exact.of_rule("all").admitted, rel=0.15)


@pytest.mark.parametrize(
    ("now", "admitted", "plain", "more", "until"),
    [
        (3.0, 150, 150, 0.0, -math.inf),
        (5.0, 99, 99, 0.0, -math.inf),
        (5.0, 100, 111, 11.0, 10.0),
        (5.0, 100, 112, 11.0, 10.0),
        (5.0, 100, 113, 11.0, -math.inf),
    ],
    ids=["too short", "too few", "what limiters hold is not wasted", "a hundredth is wasted", "more is wasted"],
)
def test_a_plain_bucket_is_trusted_for_as_long_as_it_was_watched(
    now: float, admitted: int, plain: int, more: float, until: float
) -> None:
    trust = BucketTrust()
    trust.begin(0.0)
    trust.add(admitted, plain)
    if trust.is_due(now):
        trust.judge(now, more)
    assert trust.until == until


@pytest.mark.parametrize(
    ("counts", "lasts"),
    [([30], [True]), ([20, 45], [True, True]), ([19], [False]), ([46], [False]), ([30] * 12, [True] * 11 + [False])],
    ids=["as before", "about as many", "fewer", "more", "too long"],
)
def test_trust_ends_with_the_demand_that_it_was_gained_at(counts: list[int], lasts: list[bool]) -> None:
    trust, found = BucketTrust(), list[bool]()
    trust.begin(0.0)
    for _ in range(30):
        trust.add(4, 4)
        trust.called += 1
    trust.judge(5.0, 0.0)
    for window, count in enumerate(counts):
        trust.count = count
        found.append(trust.lasts(10.0 + 5 * window))
    assert found == lasts
    assert trust.calls == sum(counts), "reservoirs made a call for each request"


def test_calls_count_by_the_window_whose_requests_they_are_of() -> None:
    """A plain bucket that is trusted may become full, and then short, before its window is looked at again."""
    trust = BucketTrust()
    trust.begin(0.0)
    for _ in range(30):
        trust.add(4, 4)
        trust.called += 1
    trust.judge(5.0, 0.0)
    trust.count = 20
    trust.begin(1000.0)
    trust.settle()
    assert trust.calls == 20


def test_a_key_whose_sample_ended_early_is_replayed_when_arithmetic_decides_again() -> None:
    rule = Rule("login", "20/minute", key="login:{ip}")
    times = [0.0, 5.0, *[10.0 + n / 100 for n in range(25)], *[300.0 + 5 * n for n in range(4)]]
    result = replayed(rule, [line(at) for at in times], instances=1)
    assert (result.requests, result.of_rule("login").refused) == (31, 6)


def test_logs_of_visits_are_replayed_whatever_the_rules() -> None:
    """Keys go again and again from arithmetic to reservoirs and back, some of them in a sample."""
    for seed in range(depth(1, 100)):
        chance, log = random.Random(seed), []
        for _ in range(depth(120, 3000)):
            begun, user = chance.uniform(0, 4000), f"user{chance.randrange(20)}"
            log += [
                line(begun + n * chance.random(), chance.choice(["/x", "/y"]), user=user)
                for n in range(chance.randrange(40))
            ]
        rules = [Rule("x", "5/minute", key="x:{user}", match="/x"), Rule("all", "2/s burst 20", key="all:{user}")]
        log.sort()
        screened, exact = (replayed(rules, log, is_exact=is_exact) for is_exact in (False, True))
        assert screened.admitted == pytest.approx(exact.admitted, rel=0.02)
        assert screened.calls == pytest.approx(exact.calls, rel=0.15)


def test_the_same_seed_gives_the_same_result() -> None:
    rule, log = Rule("all", "30/s", key="all"), steady(90.0, 10.0)

    def while_others_draw() -> Iterator[Line]:
        for each in log:
            random.seed(each[0])
            yield each

    first, second = replayed(rule, log), replayed(rule, while_others_draw())
    assert (first.admitted, first.calls) == (second.admitted, second.calls)


def test_a_client_stays_at_its_instance() -> None:
    rules = Rules([Rule("all", "100/s burst 1000", key="all")])
    log = steady(100.0, 10.0)
    at_one = Replay(rules, 8, Spread.CLIENT, is_exact=True).run(log)
    spread = Replay(rules, 8, Spread.RANDOM, is_exact=True).run(log)
    assert at_one.calls < spread.calls, "one instance leases for all"


def ignore(_screen: Screen) -> None:
    pass


@pytest.mark.parametrize(
    ("quota", "costs", "expected"),
    [
        (Quota(1.0, 10), [1] * 5, [True] * 4 + [False]),
        (Quota(1.0, 10), [2, 2], [True, False]),
        (Quota(1.0, 4), [1, 1], [True, False]),
        (Quota(1.0, 3), [1], [False]),
        (Quota(1.0, 100, [Quota(0.1, 10)]), [1] * 5, [True] * 4 + [False]),
        (Quota(0.0), [1], [False]),
    ],
    ids=[
        "half of the burst and two more",
        "twice the cost",
        "a small burst",
        "a smaller one",
        "the poorest",
        "nothing",
    ],
)
def test_arithmetic_decides_while_half_of_the_burst_and_twice_the_cost_are_there(
    quota: Quota, costs: list[int], expected: list[bool]
) -> None:
    screen = Screen(quota, 0.0, ignore)
    assert [screen.is_open and screen.passes(0.0, cost) for cost in costs] == expected


def test_arithmetic_decides_again_when_the_bucket_has_been_full_for_a_while() -> None:
    screen = Screen(Quota(1.0, 10), 0.0, ignore)
    while screen.passes(0.0, 1):
        pass
    assert screen.levels == [6.0]
    assert [screen.reopens(at) for at in (20.0, 44.0, 70.0)] == [False, False, True]
    assert screen.levels == [10.0]


def test_a_sample_tells_the_calls_of_stretches_of_the_same_kind() -> None:
    sample, screen = CallSample(), Screen(Quota(1.0, 10), 0.0, ignore)
    assert sample.calls == 0
    screen.count = 1
    sample.begin(screen)
    assert (screen.is_sampled, screen.kind) == (True, 1)
    for kind in (1, 1, None):
        sample.call(kind)
    screen.count = 2
    sample.settle(screen)
    for screen.is_sampled, screen.count in ((False, 1), (False, 300)):
        sample.settle(screen)
    assert sample.calls == 301, "one call for each; the nearest kind tells of those without a sample"
