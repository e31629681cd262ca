"""What each framework keeps to alike, called in this process in a time that the test sets."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.address import TrustedProxies
from batchlimit.integrations.headers import Fields
from batchlimit.rules import Rule, Rules
from batchlimit.stores import MemoryStore
from tests.integrations.everywhere import FACES, PEERS, THREADS
from tests.integrations.structured import read_limits
from tests.sync.stage import ARRIVAL, Clock

Serving = Callable[..., Any]
IP = Rule("ip", "2/minute", key="ip:{ip}")
OFF = Rule("off", "0/s", key="off")
USER = Rule("user", "1/hour", key="user:{user}")
SEARCH = Rule("search", "5/hour", key="search:{user}", match=None, cost=2)


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def serving(face: str, without_refresher: None) -> Serving:
    """What serves by these rules, and by one that a route asks for."""
    return lambda rules, *source, **options: FACES[face]([*rules, SEARCH], *source, **options)


def test_a_burst_is_admitted_then_refused_and_admitted_again_when_it_was_told(face: str, serving: Serving) -> None:
    clock = Clock()

    def made() -> Any:
        kind: Any = RateLimiter if face in THREADS else AsyncRateLimiter
        return kind(MemoryStore(clock), Rules([IP, SEARCH]).quotas, clock=clock, sizer=FixedBatch(1))

    with serving([IP], made, headers=Fields(secret=b"s", chance=lambda: 1.0)) as served:
        replies = [served.get("/hello") for _ in range(3)]
        assert [each.status for each in replies] == [200, 200, 429]
        assert [read_limits(each.fields)["ip"][:4] for each in replies] == [
            (2, 60, 1, 30),
            (2, 60, 0, 30),
            (2, 60, 0, 30),
        ]
        assert "retry-after" not in replies[1].fields
        wait = int(replies[2].fields["retry-after"])
        assert 30 <= wait <= 34
        clock.pass_by(wait + ARRIVAL)
        assert served.get("/hello").status == 200
        assert served.statistics().rules["ip"].refused == 1


def test_a_refusal_is_a_problem_that_no_cache_stores(serving: Serving) -> None:
    with serving([OFF]) as served:
        reply = served.get("/hello")
    assert (reply.status, json.loads(reply.text)["violated-policies"]) == (429, ["off"])
    assert reply.fields["content-type"] == "application/problem+json"
    assert reply.fields["cache-control"] == "no-store"
    assert reply.fields.get("content-length", str(len(reply.text))) == str(len(reply.text))


@pytest.mark.parametrize("path", ["/nowhere", "/" + "a" * 4_000, "/%ff%fe", "/a//../b"])
def test_rules_hold_for_paths_that_no_view_serves(serving: Serving, path: str) -> None:
    with serving([OFF]) as served:
        assert served.get(path).status == 429


@pytest.mark.parametrize("face", [each for each in FACES if each != "wsgi"])
def test_a_route_is_charged_to_what_it_asks_for_and_the_fields_tell_of_all_rules(serving: Serving) -> None:
    with serving([Rule("all", "100/hour", key="all")]) as served:
        replies = [served.get("/search") for _ in range(3)]
        assert [each.status for each in replies] == [200, 200, 429]
        told = [{name: (each.q, each.r) for name, each in read_limits(reply.fields).items()} for reply in replies]
        assert told[0] == {"all": (100, 99), "search": (5, 3)}
        assert list(told[2]) == ["search"]
        assert served.get("/search", "bob").status == 200


@pytest.mark.parametrize(
    ("identify", "unidentified", "status"),
    [
        (lambda request: None, "refuse", 403),
        (lambda request: None, "admit", 200),
        (lambda request: 1 / 0, "refuse", 503),
        (lambda request: 1 / 0, "admit", 200),
        (lambda request: "ann", "refuse", 503),
    ],
)
def test_who_cannot_be_told_is_refused_or_admitted_and_never_a_500(
    serving: Serving, identify: Any, unidentified: str, status: int
) -> None:
    with serving([USER, Rule("all", "9/hour", key="all")], identify=identify, unidentified=unidentified) as served:
        assert served.get("/hello").status == status
        assert served.statistics().rules["user"].no_key == 1
        assert served.statistics().rules["all"].acquired == (status == 200)


def test_the_client_behind_a_trusted_proxy_is_limited_and_not_the_proxy(serving: Serving) -> None:
    clients = ["203.0.113.1", "203.0.113.2", "8.8.8.8, 203.0.113.1"]
    with serving([Rule("ip", "1/hour", key="ip:{ip}")], proxies=TrustedProxies(PEERS)) as served:
        assert [served.get("/hello", x_forwarded_for=each).status for each in clients] == [200, 200, 429]


@pytest.mark.parametrize("told", [True, False])
def test_forwarding_fields_that_nobody_trusts_are_told_once(
    serving: Serving, caplog: pytest.LogCaptureFixture, told: bool
) -> None:
    with serving([Rule("ip", "1/hour", key="ip:{ip}")], checks=told) as served:
        statuses = [served.get("/hello", x_forwarded_for=f"203.0.113.{n}").status for n in range(3)]
    assert statuses == [200, 429, 429]
    found = [each for each in caplog.records if "no proxy is trusted" in each.getMessage()]
    assert [each.levelno for each in found] == [logging.WARNING] * told


@pytest.mark.parametrize("face", [each for each in FACES if each != "flask"])  # whose error handlers answer
@pytest.mark.parametrize("own", [lambda request, refusal: 1 / 0, lambda request, refusal: {"error": "later"}])
def test_an_own_answer_that_raises_or_is_none_is_a_refusal_all_the_same(
    serving: Serving, caplog: pytest.LogCaptureFixture, own: Any
) -> None:
    with serving([OFF], on_rejected=own) as served:
        reply = served.get("/hello")
    assert (reply.status, reply.fields["content-type"]) == (429, "application/problem+json")
    assert "on_rejected raised" in caplog.text


@pytest.mark.parametrize(("on_failure", "status"), [("closed", 503), ("open", 200)])
def test_a_store_that_is_away_is_a_503_or_what_the_rule_says(serving: Serving, on_failure: Any, status: int) -> None:
    nobody = "redis://127.0.0.1:1"
    with serving([Rule("ip", "2/minute", key="ip:{ip}", on_failure=on_failure)], nobody) as served:
        reply = served.get("/hello")
    assert (reply.status, reply.fields.get("retry-after")) == (status, "1" if status == 503 else None)
