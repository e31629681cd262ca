"""A log replayed through rules: by limiters in virtual time, or by one bucket for each key."""

import json
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from batchlimit.cli.simulate import replay
from batchlimit.cli.simulate.log import Bad, Line, lines
from batchlimit.cli.simulate.replay import Replay, ReplayBucket, Spread
from batchlimit.cli.simulate.result import Result
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


@pytest.fixture(autouse=True)
def few_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have limiters decide the first 50 charges of a log, and those of 10 s of each 400, unless it is exact."""
    monkeypatch.setattr(replay, "_FIRST", 50)


EXACT = pytest.mark.parametrize("is_exact", [False, True], ids=["screened", "exact"])


@EXACT
@pytest.mark.parametrize("instances", [1, 4, 20])
def test_a_fleet_admits_what_the_quota_allows_and_never_more(instances: int, is_exact: bool) -> None:
    rule = Rule("all", "100/s burst 200", key="all")
    result = replayed(rule, steady(400.0, 30.0), instances, is_exact=is_exact)
    assert result.requests == 12_000
    assert 0.97 * (200 + 100 * 30) <= result.admitted <= 200 + 100 * 30


def test_limiters_find_what_the_bucket_has_where_they_decide_again() -> None:
    result = replayed(Rule("all", "1/s burst 100", key="all"), steady(3.0, 900.0))
    assert (0.97 * 1000 <= result.admitted <= 1000, 80 < result.asked < 200) == (True, True)


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


ONE_AND_ALL = [Rule("one", "2/hour", key="one", match="/*"), Rule("all", "100/hour", key="all", match="/*")]
LOGINS = [line(float(n), status=401 if n % 2 else 200) for n in range(20)]
CASES: list[tuple[list[Rule], list[Line], range, dict[str, tuple[int, int]]]] = [
    ([Rule("all", "100/s burst 200", key="all")], steady(50.0, 60.0), range(3000, 3001), {}),
    ([Rule("all", "0/s", key="all")], steady(1.0, 5.0), range(1), {}),
    ([Rule("api", "1/hour", key="all", match="/api/*")], steady(1.0, 5.0), range(5, 6), {}),
    ([Rule("all", "10/s; 30/hour", key="all")], steady(2.0, 60.0), range(30, 32), {}),
    (ONE_AND_ALL, steady(1.0, 20.0), range(2, 3), {"one": (2, 18), "all": (2, 0)}),
    ([Rule("trial", "2/hour", key="all", mode="shadow")], steady(1.0, 20.0), range(20, 21), {"trial": (2, 18)}),
    ([Rule("login", "3/hour", key="login:{ip}", charge=[401])], LOGINS, range(6, 7), {"login": (6, 14)}),
]


@EXACT
@pytest.mark.parametrize(
    ("rules", "log", "admitted", "told"),
    CASES,
    ids=[
        "below the quota",
        "of nothing",
        "of another path",
        "two bandwidths",
        "all or none",
        "in shadow",
        "not charged by its status",
    ],
)
def test_rules_admit_in_a_replay_what_they_admit_live(
    is_exact: bool, rules: list[Rule], log: list[Line], admitted: range, told: dict[str, tuple[int, int]]
) -> None:
    result = replayed(rules, log, instances=1 if "login" in told else 4, is_exact=is_exact)
    assert result.admitted in admitted
    assert {name: (result.of_rule(name).admitted, result.of_rule(name).refused) for name in told} == told


def test_requests_without_a_key_pass_and_are_counted() -> None:
    result = replayed(Rule("users", "1/hour", key="user:{user}"), steady(1.0, 5.0))
    assert (result.admitted, result.without_key["users"]) == (5, 5)


def test_paths_are_matched_without_their_query_and_decoded() -> None:
    rule = Rule("items", "1/hour", key="item:{id}", match="/items/{id}")
    log = [line(0.0, path="/items/a%62c?x=1"), line(1.0, path="/items/abc")]
    assert list(replayed(rule, log).keys) == [("items", "item:abc")]


@pytest.mark.parametrize("rule", [Rule("x", "9/s", key="all", cost=len), Rule("x", "9/s", key="all", charge=bool)])
def test_what_only_a_request_or_a_response_can_tell_is_refused_by_name(rule: Rule) -> None:
    with pytest.raises(ValueError, match=r"rule 'x'.*function"):
        replayed(rule, steady(1.0, 5.0))


@pytest.mark.parametrize("charge", [None, [401]])
def test_logs_of_visits_are_replayed_whatever_the_rules(charge: list[int | str] | None) -> None:
    """Keys go again and again from buckets to limiters and back. What a response gives back, both get back."""
    for seed in range(depth(1, 10)):
        chance, log = random.Random(seed), []
        for _ in range(depth(120, 600)):
            begun, user = chance.uniform(0, 4000), f"user{chance.randrange(20)}"
            log += [
                line(
                    begun + n * chance.random(),
                    chance.choice(["/x", "/y"]),
                    user=user,
                    status=chance.choice([200, 401]),
                )
                for n in range(chance.randrange(40))
            ]
        rules = [Rule("x", "5/minute", key="x:{user}", match="/x", charge=charge), Rule("all", "2/s", key="all:{user}")]
        log.sort()
        screened, exact = (replayed(rules, log, is_exact=is_exact) for is_exact in (False, True))
        assert (screened.asked < 0.2 * exact.asked, exact.asked) == (
            True,
            2 * len(log) - sum(each[2] == "/y" for each in log),
        )
        assert screened.admitted == pytest.approx(exact.admitted, rel=0.02)
        assert screened.calls == pytest.approx(exact.calls, rel=0.26)


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


@pytest.mark.parametrize(
    ("quota", "spends", "expected"),
    [
        (Quota(1.0, 3), [(0.0, 1)] * 4, [True] * 3 + [False]),
        (Quota(1.0, 3), [(0.0, 3), (0.5, 1), (1.0, 1), (9.0, 3), (9.0, 1)], [True, False, True, True, False]),
        (Quota(1.0, 100, [Quota(0.1, 2)]), [(0.0, 1)] * 3, [True, True, False]),
        (Quota(0.0), [(0.0, 1)], [False]),
        (Quota(100.0, 1), [(0.001 + n * 0.01, 1) for n in range(1000)], [True] * 1000),
    ],
    ids=["the burst", "what has refilled", "the poorest", "nothing", "at the pace of its quota"],
)
def test_a_plain_bucket_has_what_its_quota_says(quota: Quota, spends: list[tuple[float, int]], expected: Any) -> None:
    bucket, found = ReplayBucket("all", quota, 0.0), list[bool]()
    for at, cost in spends:
        found.append(bucket.has(at, cost))
        bucket.spend(cost * found[-1])
    assert found == expected


@EXACT
def test_rules_that_share_a_key_add_up(is_exact: bool) -> None:
    rules = [Rule("one", "4/hour", key="all"), Rule("two", "4/hour", key="all", match="/x", cost=3)]
    result = replayed(rules, [line(60.0 + n, path="/x") for n in range(3)], instances=1, is_exact=is_exact)
    assert (result.admitted, result.of_rule("two").refused) == (1, 2)


def test_lines_of_a_whole_second_are_spread_over_it() -> None:
    log = [line(float(n // 4) + 0.5) for n in range(40)]
    assert replayed(Rule("all", "4/s burst 1", key="all"), log, is_exact=True).admitted >= 39
    assert replayed(Rule("all", "4/s burst 1", key="all"), [(each[0] + 0.25, *each[1:]) for each in log]).admitted <= 11


# Lines of an access log, in the formats that servers write
AT = datetime(2026, 11, 22, 10, 0, 5, tzinfo=UTC).timestamp()
COMMON = '203.0.113.9 - ann [22/Nov/2026:10:00:05 +0000] "GET /items/7?q=1 HTTP/1.1" 200 512'
READ = (AT, "GET", "/items/7?q=1", "203.0.113.9", "ann", 200)


def read(*texts: str) -> tuple[list[Line], int]:
    bad = Bad()
    return list(lines(iter(texts), bad)), bad.count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (COMMON, READ),
        (COMMON + ' "https://example.org/" "Mozilla/5.0 (X11)"\n', READ),
        (COMMON.replace("10:00:05 +0000", "12:00:05 +0200"), READ),
        (COMMON.replace(" ann ", " - "), (*READ[:4], "", 200)),
        (COMMON.replace(" ann ", " ann smith "), (*READ[:4], "ann smith", 200)),
        (COMMON.replace(" 200 ", " - "), (*READ[:5], 0)),
        (COMMON.replace("203.0.113.9", "2001:db8::1"), (*READ[:3], "2001:db8::1", *READ[4:])),
        (COMMON.replace(" HTTP/1.1", ""), READ),
    ],
    ids=["common", "combined", "another zone", "no user", "a user of two words", "no status", "IPv6", "HTTP/0.9"],
)
def test_the_common_and_the_combined_format_are_read(text: str, expected: Line) -> None:
    assert read(text) == ([expected], 0)


@pytest.mark.parametrize(
    "told",
    [
        {"time": "2026-11-22T10:00:05+00:00", "request_method": "GET", "request_uri": "/items/7?q=1",
         "remote_addr": "203.0.113.9", "remote_user": "ann", "status": "200"},
        {"msec": f"{AT:.3f}", "request": "GET /items/7?q=1 HTTP/1.1", "remote_addr": "203.0.113.9", "user": "ann",
         "status": 200},
        {"ts": AT, "method": "GET", "path": "/items/7?q=1", "client_ip": "203.0.113.9", "user_id": "ann", "code": 200},
        {"timestamp": AT * 1000, "method": "GET", "url": "/items/7?q=1", "ip": "203.0.113.9", "username": "ann",
         "status_code": 200},
        {"time_local": "22/Nov/2026:10:00:05 +0000", "verb": "GET", "uri": "/items/7?q=1", "addr": "203.0.113.9",
         "user": "ann", "status": 200},
    ],
    ids=["nginx", "request in one", "seconds", "milliseconds", "local time"],
)  # fmt: skip
def test_json_lines_are_read_by_the_names_that_servers_use(told: dict[str, object]) -> None:
    assert read(json.dumps(told)) == ([READ], 0)


def test_what_json_does_not_tell_is_unknown() -> None:
    assert read('{"ts": 5.5, "path": "/"}') == ([(5.5, "GET", "/", "", "", 0)], 0)


@pytest.mark.parametrize(
    "text", ["rubbish", COMMON[:40], COMMON.replace("22/Nov", "99/Nov"), COMMON.replace("10:00:05", "10:xx:05")]
)
def test_what_is_no_request_is_counted_and_passed_over(text: str) -> None:
    assert read(COMMON, text, "\n", COMMON) == ([READ, READ], 1)


@pytest.mark.parametrize("text", ["{", "{}", '{"ts": "yesterday", "path": "/"}', '{"ts": 1}', "[1]", '{"path": "/"}'])
def test_json_that_is_no_request_is_counted(text: str) -> None:
    assert read('{"ts": 1, "path": "/"}', text)[1] == 1


def test_an_empty_log_has_no_lines() -> None:
    assert read() == ([], 0)
    assert read("\n", "  \n") == ([], 0)


def test_time_never_goes_back() -> None:
    bad, texts = Bad(), [json.dumps({"ts": at, "path": "/"}) for at in (100.0, 300.0, 200.0, 241.0, 400.0)]
    assert [at for at, *_ in lines(iter(texts), bad)] == [100.0, 300.0, 300.0, 300.0, 400.0]
    assert bad.late == 1
