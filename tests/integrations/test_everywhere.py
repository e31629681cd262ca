"""What each framework keeps to alike, called in this process in a time that the test sets."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.address import TrustedProxies
from batchlimit.integrations.headers import Fields
from batchlimit.rules import Rule, Rules
from batchlimit.stores import MemoryStore
from tests.integrations.asgi import websocket
from tests.integrations.everywhere import FACES, ON_ASGI, PEERS, ROUTING, THREADS, Served
from tests.integrations.faces.rules import RULES, TYPO, VIEWS
from tests.integrations.made import View, fails
from tests.sync.stage import ARRIVAL, Clock

Serving = Callable[..., Any]
IP = Rule("ip", "2/minute", key="ip:{ip}")
OFF = Rule("off", "0/s", key="off")
USER = Rule("user", "1/hour", key="user:{user}")
SEARCH = Rule("search", "5/hour", key="search:{user}", match=None, cost=2)
FIELDS = Fields(secret=b"s", chance=lambda: 1.0)


def limiter_of(face: str, clock: Clock, rules: Sequence[Rule]) -> Any:
    """Return a limiter of the API of a face, in the time of a clock."""
    kind: Any = RateLimiter if face in THREADS else AsyncRateLimiter
    return kind(MemoryStore(clock), Rules(rules).quotas, clock=clock, sizer=FixedBatch(1))


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def serving(face: str, without_refresher: None) -> Serving:
    """What serves by these rules, and by one that a route asks for."""
    return lambda rules, *source, **options: FACES[face]([*rules, SEARCH], *source, **options)


def test_a_burst_is_admitted_then_refused_and_admitted_again_when_it_was_told(
    face: str, serving: Serving, clock: Clock
) -> None:
    with serving([IP], lambda: limiter_of(face, clock, [IP, SEARCH]), headers=FIELDS) as served:
        replies = [served.get("/hello") for _ in range(3)]
        assert [each.status for each in replies] == [200, 200, 429]
        assert [each.limits["ip"][:4] for each in replies] == [
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
@pytest.mark.parametrize(
    ("own", "told"),
    [
        (lambda request, refusal: 1 / 0, True),
        (lambda request, refusal: {"error": "later"}, True),
        (lambda request, refusal: None, False),
    ],
)
def test_an_own_answer_that_raises_or_is_none_is_a_refusal_all_the_same(
    face: str, serving: Serving, caplog: pytest.LogCaptureFixture, own: Any, told: bool
) -> None:
    with serving([OFF], on_rejected=own) as served:
        reply = served.get("/hello")
    assert (reply.status, reply.fields["content-type"]) == (429, "application/problem+json")
    assert ("on_rejected raised" in caplog.text) == (told or face == "aiohttp")  # where nothing is no response


@pytest.mark.parametrize(("on_failure", "status"), [("closed", 503), ("open", 200)])
def test_a_store_that_is_away_is_a_503_or_what_the_rule_says(serving: Serving, on_failure: Any, status: int) -> None:
    nobody = "redis://127.0.0.1:1"
    with serving([Rule("ip", "2/minute", key="ip:{ip}", on_failure=on_failure)], nobody) as served:
        reply = served.get("/hello")
    assert (reply.status, reply.fields.get("retry-after")) == (status, "1" if status == 503 else None)


# What routes ask for

FRAMEWORKS = [each for each in ON_ASGI if each != "asgi"]
FOR_ROUTES = pytest.mark.parametrize("face", ROUTING)


@pytest.fixture
def shop(face: str, clock: Clock, without_refresher: None) -> Iterator[Served]:
    """The routes of `faces/rules.py` behind its rules, in the time of the clock."""
    with FACES[face](RULES, lambda: limiter_of(face, clock, RULES), VIEWS, headers=FIELDS) as served:
        yield served


@FOR_ROUTES
@pytest.mark.parametrize("path", ["/search", "/included/search", "/mounted/search"])
def test_a_route_is_limited_wherever_it_is_and_admitted_again_when_it_was_told(
    shop: Served, clock: Clock, path: str
) -> None:
    replies = [shop.get(path) for _ in range(3)]
    assert [each.status for each in replies] == [200, 200, 429]
    assert [{name: each.r for name, each in reply.limits.items()} for reply in replies] == [
        {"all": 999, "search": 2},
        {"all": 998, "search": 0},
        {"search": 0},
    ]
    refused = replies[-1]
    assert refused.fields["content-type"] == "application/problem+json"
    assert refused.fields["cache-control"] == "no-store"
    assert json.loads(refused.text)["violated-policies"] == ["search"]
    assert shop.get(path, "bob").status == 200
    clock.pass_by(int(refused.fields["retry-after"]) + ARRIVAL)
    assert shop.get(path).status == 200


@pytest.mark.parametrize("face", FRAMEWORKS)
def test_the_route_says_who_asks(shop: Served) -> None:
    assert [shop.get("/told", user).status for user in ("ann", "bob", "eve")] == [200, 200, 429]
    assert shop.get("/search", "ann").limits["search"].r == 2


@FOR_ROUTES
def test_path_parameters_of_the_route_make_keys(shop: Served) -> None:
    assert shop.statuses("/items/7", 3) == [200, 200, 429]
    assert shop.statuses("/items/8", 1) == [200]


@FOR_ROUTES
def test_a_stream_arrives_whole_and_is_charged_by_what_was_sent(shop: Served) -> None:
    replies = [shop.get("/stream") for _ in range(2)]
    assert [each.text for each in replies] == ["000000000011111111112222222222"] * 2
    assert [each.limits["bytes"].r for each in replies] == [50, 20]


@FOR_ROUTES
def test_only_failed_logins_are_charged(shop: Served) -> None:
    statuses = [shop.get(f"/login/{status}").status for status in (200, 401, 200, 401, 200)]
    assert statuses == [200, 401, 200, 401, 429]


@FOR_ROUTES
def test_a_route_that_raises_is_a_500_of_its_own_and_is_charged(shop: Served) -> None:
    for _ in range(2):
        with suppress(ZeroDivisionError):  # what the framework does with it is its own affair
            assert shop.get("/broken").status == 500
    assert shop.get("/broken").status == 429


@pytest.mark.parametrize("face", ["flask", "django", "django-asgi"])
def test_a_500_carries_the_fields_and_its_charge_hears_of_it(face: str) -> None:
    seen: list[Any] = []

    def charge(response: Any) -> bool:
        seen.append(response)
        return False

    rule = Rule("x", "9/hour", key="x", match=None, charge=charge)
    with FACES[face]([rule], "memory://", [View("/broken", fails, "x")]) as served:
        reply = served.get("/broken")
        assert (reply.status, list(reply.limits)) == (500, ["x"])
    assert [(each.status, each.error is None) for each in seen] == [(500, face == "flask")]  # which has answered it


@pytest.mark.parametrize("face", FRAMEWORKS)
def test_a_websocket_is_refused_before_it_is_accepted(shop: Served) -> None:
    extensions: list[dict[str, Any]] = [{}, {}, {"websocket.http.response": {}}]
    scopes = [websocket("/ws", extensions=each) | {"headers": [(b"x-user", b"ann")]} for each in extensions]
    connect, disconnect = {"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}
    accepted, closed, denied = [shop.call(scope, connect, disconnect) for scope in scopes]
    assert accepted.messages[0]["type"] == "websocket.accept"
    assert b"ratelimit" in dict(accepted.messages[0]["headers"])
    assert [(each["type"], each["code"]) for each in closed.messages] == [("websocket.close", 1008)]
    assert (denied.status, denied.limits["handshake"].r) == (429, 0)


@pytest.mark.parametrize("face", [*ON_ASGI, "django", "django-asgi"])  # the others look when the application starts
def test_a_key_that_no_rule_has_is_a_503_and_told(face: str, caplog: pytest.LogCaptureFixture) -> None:
    with FACES[face](RULES, "memory://", [TYPO]) as served:
        reply = served.get("/typo")
    assert (reply.status, reply.fields["retry-after"]) == (503, "1")
    assert "'serch:{user}': did you mean 'search:{user}'?" in caplog.text


@pytest.mark.parametrize("face", ON_ASGI)
def test_an_answer_of_the_users_own_holds_for_routes_too(face: str) -> None:
    def rejected(scope: Any, refusal: Any) -> Any:
        return PlainTextResponse(f"{refusal.rules[0]}: {refusal.key}", status_code=420)

    with FACES[face](RULES, "memory://", VIEWS, on_rejected=rejected) as served:
        reply = [served.get("/search") for _ in range(3)][-1]
    assert (reply.status, reply.text) == (420, "search: search:ann")
    assert reply.limits["search"].r == 0
    assert "retry-after" in reply.fields
