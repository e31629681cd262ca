"""What each framework keeps to alike, called in this process in a time that the test sets."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from django.http import HttpResponse
from starlette.responses import PlainTextResponse

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations import asgi, wsgi
from batchlimit.integrations.address import TrustedProxies
from batchlimit.integrations.enforcement import Outcome
from batchlimit.integrations.front import Front
from batchlimit.integrations.headers import Fields
from batchlimit.rules import Request, Rule, RuleFile, Rules
from batchlimit.stores import MemoryStore
from tests.garbage import kept
from tests.integrations import everywhere
from tests.integrations.asgi import websocket
from tests.integrations.everywhere import EVERYWHERE, FACES, ON_ASGI, ROUTING, Served
from tests.integrations.faces.rules import RULES, TYPO, VIEWS
from tests.integrations.made import View, fails, says, user_of
from tests.sync.stage import ARRIVAL, Clock

Serving = Callable[..., Any]
IP = Rule("ip", "2/minute", key="ip:{ip}")
OFF = Rule("off", "0/s", key="off")
USER = Rule("user", "1/hour", key="user:{user}")
SEARCH = Rule("search", "5/hour", key="search:{user}", match=None, cost=2)
FIELDS = Fields(secret=b"s", chance=lambda: 1.0)


def limiter_of(face: str, clock: Clock, rules: Sequence[Rule]) -> Any:
    """Return a limiter of the API of a face, in the time of a clock."""
    kind: Any = RateLimiter if face in everywhere.THREADS else AsyncRateLimiter
    return kind(MemoryStore(clock), Rules(rules).quotas, clock=clock, sizer=FixedBatch(1))


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def serving(face: str, without_refresher: None) -> Serving:
    """What serves by these rules, and by one that a route asks for."""
    return lambda rules, *source, **options: FACES[face]([*rules, SEARCH], *source, **options)


def test_a_burst_is_admitted_then_refused_and_admitted_again_as_told(face: str, serving: Serving, clock: Clock) -> None:
    with serving([IP], lambda: limiter_of(face, clock, [IP, SEARCH]), headers=FIELDS) as served:
        replies = [served.get("/hello") for _ in range(3)]
        assert [each.status for each in replies] == [200, 200, 429]
        assert [each.limits["ip"][:4] for each in replies] == [(2, 60, 1, 30), (2, 60, 0, 30), (2, 60, 0, 30)]
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


PATHS = ["/nowhere", "/" + "a" * 4_000, "/%ff%fe", "/a//../b"]
STRANGE = [*PATHS, "", "*", "//", "/\x00", "/\xff\xfe", "/a:b", "/" + "a" * 10_000]
"""No client of aiohttp sends all of these."""


@pytest.mark.parametrize(
    ("face", "path"), [(face, path) for face in FACES for path in (PATHS if face == "aiohttp" else STRANGE)]
)
def test_rules_hold_for_paths_that_no_view_serves(serving: Serving, path: str) -> None:
    with serving([Rule("item", "9/hour", key="item:{id}", match="/{id}"), OFF]) as served:
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
def test_a_stranger_is_refused_or_admitted(serving: Serving, identify: Any, unidentified: str, status: int) -> None:
    with serving([USER, Rule("all", "9/hour", key="all")], identify=identify, unidentified=unidentified) as served:
        assert served.get("/hello").status == status
        assert served.statistics().rules["user"].no_key == 1
        assert served.statistics().rules["all"].acquired == (status == 200)


@pytest.mark.parametrize("face", [each for each in FACES if each not in ("flask", "wsgi")])
@pytest.mark.parametrize(("unidentified", "status"), [("refuse", 503), ("admit", 200)])
def test_identify_may_be_awaited(serving: Serving, unidentified: str, status: int) -> None:
    async def identify(_: Any) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"user": users.pop()}

    users = ["ann", "ann"]
    with serving([USER, Rule("all", "9/hour", key="all")], identify=identify, unidentified=unidentified) as served:
        assert [served.get("/hello").status for _ in range(3)] == [200, 429, status]
        assert served.statistics().rules["user"].no_key == 1
        assert served.statistics().rules["all"].acquired == 1 + (status == 200)


def test_the_client_behind_a_trusted_proxy_is_limited_and_not_the_proxy(face: str, serving: Serving) -> None:
    clients = ["203.0.113.1", "203.0.113.2", "8.8.8.8, 203.0.113.1"]
    proxies: Any = (
        everywhere.PEERS if face == "django" else TrustedProxies(everywhere.PEERS)
    )  # its setting may be a list
    with serving([Rule("ip", "1/hour", key="ip:{ip}")], proxies=proxies) as served:
        assert [served.get("/hello", x_forwarded_for=each).status for each in clients] == [200, 200, 429]


@pytest.mark.parametrize("told", [True, False])
def test_forwarding_fields_without_proxies_are_told_once(serving: Serving, caplog: Any, told: bool) -> None:
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
def test_an_own_answer_that_raises_or_is_none_is_a_refusal(
    face: str, serving: Serving, caplog: pytest.LogCaptureFixture, own: Any, told: bool
) -> None:
    told = told or face == "aiohttp"  # where nothing is no response
    with serving([OFF], on_rejected=own) as served:
        replies = [served.get("/hello") for _ in range(3)]
        assert served.statistics().rules["off"].faults == 3 * told
    assert {(each.status, each.fields["content-type"]) for each in replies} == {(429, "application/problem+json")}
    assert sum("on_rejected raised" in message for message in caplog.messages) == told, "once a minute"


@pytest.mark.parametrize(("on_failure", "status"), [("closed", 503), ("open", 200)])
def test_a_store_that_is_away_is_a_503_or_what_the_rule_says(serving: Serving, on_failure: Any, status: int) -> None:
    nobody = "redis://127.0.0.1:1"
    with serving([Rule("ip", "2/minute", key="ip:{ip}", on_failure=on_failure)], nobody) as served:
        reply = served.get("/hello")
    assert (reply.status, reply.fields.get("retry-after")) == (status, "1" if status == 503 else None)


FRAMEWORKS = [each for each in ON_ASGI if each != "asgi"]
FOR_ROUTES = pytest.mark.parametrize("face", ROUTING)


@pytest.fixture
def shop(face: str, clock: Clock, without_refresher: None) -> Iterator[Served]:
    """The routes of `faces/rules.py` behind its rules, in the time of the clock."""
    with FACES[face](RULES, lambda: limiter_of(face, clock, RULES), VIEWS, headers=FIELDS) as served:
        yield served


@FOR_ROUTES
@pytest.mark.parametrize("path", ["/search", "/included/search", "/mounted/search"])
def test_a_route_is_limited_wherever_it_is_and_admitted_again_as_told(shop: Served, clock: Clock, path: str) -> None:
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


@FOR_ROUTES
def test_a_charge_hears_of_an_answer_that_is_no_200_as_of_any_other(face: str) -> None:
    """A view, and the router, of aiohttp may raise it."""
    heard: list[Any] = []

    def charge(response: Any) -> bool:
        heard.append((response.status, response.complete, response.error, response.sent > 0))
        return False

    views = [View("/gone", says("gone", 404)), View("/login", says("who?", 401))]
    with FACES[face]([Rule("all", "9/hour", key="all", charge=charge)], "memory://", views) as served:
        assert [served.get(path).status for path in ("/gone", "/login", "/nowhere")] == [404, 401, 404]
    assert heard == [(404, True, None, True), (401, True, None, True), (404, True, None, face != "asgi")]


@pytest.mark.parametrize("face", ON_ASGI)
def test_a_websocket_is_refused_before_it_is_accepted(face: str, shop: Served) -> None:
    extensions: list[dict[str, Any]] = [{}, {}, {"websocket.http.response": {}}]
    scopes = [websocket("/ws", extensions=each) | {"headers": [(b"x-user", b"ann")]} for each in extensions]
    connect, disconnect = {"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}
    accepted, closed, denied = [shop.call(scope, connect, disconnect) for scope in scopes]
    if face == "asgi":  # others say something to who left before, too
        assert shop.call(scopes[0], disconnect).messages == []
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


def _calm(request: Any, refusal: Any) -> Any:
    return PlainTextResponse(f"calm down, {refusal.rules[0]}: {refusal.key}", status_code=420)


async def _calm_later(request: Any, refusal: Any) -> Any:
    return _calm(request, refusal)


def _calm_of_wsgi(environ: Any, refusal: Any) -> Any:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("420 Calm", [("Content-Type", "text/plain")])
        return [_calm(environ, refusal).body]

    return app


def _calm_of_django(request: Any, refusal: Any) -> Any:
    return HttpResponse(_calm(request, refusal).body, "text/plain", 420)


async def _calm_of_django_later(request: Any, refusal: Any) -> Any:
    return _calm_of_django(request, refusal)


async def _calm_of_aiohttp(request: Any, refusal: Any) -> Any:
    return web.Response(body=_calm(request, refusal).body, content_type="text/plain", status=420)


OWN = [*((face, _calm) for face in ON_ASGI), ("asgi", _calm_later), ("wsgi", _calm_of_wsgi)]
OWN += [("aiohttp", _calm_of_aiohttp), ("django", _calm_of_django), ("django-asgi", _calm_of_django)]
OWN += [("django", _calm_of_django_later), ("django-asgi", _calm_of_django_later)]


@pytest.mark.parametrize(("face", "own"), OWN)
def test_an_own_answer_has_its_own_body_and_the_fields(face: str, serving: Serving, own: Any) -> None:
    with serving([Rule("full", "2/hour", key="full", match="/hello")], on_rejected=own) as served:
        for path, told in [("/hello", "full: full"), ("/search", "search: search:ann")][: 1 + (face in ROUTING)]:
            reply = [served.get(path) for _ in range(3)][-1]
            assert (reply.status, reply.text) == (420, f"calm down, {told}")
            assert reply.fields["content-type"].startswith("text/plain")
            assert reply.fields["cache-control"] == "no-store"
            assert list(reply.limits) == [told.split(":")[0]]
            assert "retry-after" in reply.fields


@pytest.mark.parametrize("face", ON_ASGI)
def test_a_limiter_lives_as_long_as_its_application(face: str) -> None:
    with FACES[face](RULES, "memory://", VIEWS) as served:
        for _ in range(2):  # memory:// begins anew
            assert served.statuses("/search", 3) == [200, 200, 429]
            served.call({"type": "lifespan"}, {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})


def test_a_request_that_is_admitted_leaves_nothing_for_the_garbage_collector(face: str, serving: Serving) -> None:
    """Frameworks leave the HTTP errors of those that are refused to the collector themselves."""
    charged = Rule("charged", "9/hour", key="charged", charge=[401])
    with serving([charged]) as served:
        for path in ("/hello", "/search", "/nowhere")[: 2 + ("django" in face)]:
            served.get(path, "first")
            with kept(Outcome) as left:
                for user in "ann", "bob", "eve":
                    served.get(path, user)
            assert len(left) == (face == "aiohttp"), "a server of aiohttp keeps the last request"


# Requests that no rule is for, and limits that are switched off
EXEMPT_RULES = [Rule("all", "1/hour", key="all:{user}"), Rule("search", "1/hour", key="search:{user}", match=None)]


def is_staff(request: Request) -> bool:
    return request.identity.get("user") == "root"


@EVERYWHERE
def test_a_path_a_caller_and_what_routes_ask_for_is_exempt_in_every_framework(serving: Callable[..., Any]) -> None:
    with serving(Rules(EXEMPT_RULES, exempt=["GET /hello", is_staff])) as served:
        assert served.statuses("/hello", 3) == [200] * 3
        assert served.statuses("/search", 3, "root") == [200] * 3
        assert "ratelimit" not in served.get("/hello").fields
        assert served.statuses("/search", 2, "bob") == [200, 429]
        assert served.statistics().exempt == 7
        assert served.statistics().requests == 9


@EVERYWHERE
def test_limits_that_are_switched_off_admit_all(serving: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    with serving(EXEMPT_RULES, enabled=False) as served:
        assert served.statuses("/hello", 3) + served.statuses("/search", 3) == [200] * 6
        assert served.statistics().exempt == 6
        assert served.statistics().findings == {"disabled": ("",)}
    assert "enabled=False: no request is limited" in caplog.text


def test_what_is_switched_off_makes_no_limiter_and_asks_no_function() -> None:
    def never(*_: object) -> Any:
        pytest.fail("it was asked")

    rules = Rules([Rule("all", "1/hour", key="all", cost=never)], exempt=never)
    front = Front(never, rules, identify=never, enabled=False)
    assert [front.admit("GET", "/", "192.0.2.1", []).refusal for _ in range(3)] == [None] * 3
    assert front.statistics().rules["all"].matched == 0


def test_a_function_that_raises_or_says_nonsense_exempts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def raises(request: Request) -> bool:
        raise KeyError("user")

    nonsense: Any = lambda request: "yes"  # noqa: E731
    for function in (raises, nonsense):
        caplog.clear()
        with caplog.at_level(logging.WARNING), FACES["wsgi"](Rules(EXEMPT_RULES, exempt=function)) as served:
            assert served.statuses("/hello", 2) == [200, 429]
        assert "a request is not exempt, for `exempt` failed" in caplog.text


def test_a_file_says_what_is_exempt_and_a_change_is_obeyed(tmp_path: Path) -> None:
    text = 'exempt = ["/hello", "is_staff"]\n[[rules]]\nname = "all"\nquota = "1/hour"\nkey = "all:{user}"\n'
    (path := tmp_path / "rules.toml").write_text(text)
    file = RuleFile(path, functions={"is_staff": is_staff})
    with FACES["wsgi"](file) as served:
        assert served.statuses("/hello", 3) == [200] * 3
        assert served.statuses("/other", 3, "root") == [200] * 3
        path.write_text(text.replace('"/hello", ', ""))
        assert file.look()
        assert served.statuses("/hello", 2) == [200, 429]
        assert served.statuses("/hello", 2, "root") == [200] * 2


@pytest.mark.parametrize("face", ["flask", "django", "django-asgi"])  # others know what routes ask for when they start
def test_a_file_without_the_rule_of_a_view_is_refused_before_that_has_a_request(face: str, tmp_path: Path) -> None:
    text = '[[rules]]\nname = "x"\nquota = "1/hour"\nmatch = false\nkey = "{}"\n'
    (path := tmp_path / "rules.toml").write_text(text.format("search:{user}"))
    with FACES[face](file := RuleFile(path)) as served:
        served.get("/hello")
        path.write_text(text.format("other"))
        assert not file.look()
        assert "'search:{user}'" in file.problem
        assert served.statuses("/search", 2) == [200, 429]


DEFAULT = Rule("default", "2/hour", key="default:{user}")
HELLO = Rule("hello", "5/hour", key="hello:{user}", match="/hello", replaces="default")


@EVERYWHERE
def test_a_route_has_its_own_limit_in_place_of_the_default_one(serving: Callable[..., Any]) -> None:
    asked = Rule("asked", "9/hour", key="search:{user}", match=None)
    with serving([DEFAULT, HELLO, asked]) as served:
        assert served.statuses("/hello", 6) == [200] * 5 + [429]
        assert served.statuses("/search", 3) == [200] * 2 + [429]
        assert served.statuses("/hello", 1, "bob") == [200]
        assert served.get("/hello", "bob").fields["ratelimit"].startswith('"hello";r=3;')
        counts = served.statistics().rules
        assert (counts["default"].matched, counts["hello"].matched) == (3, 8)


@EVERYWHERE
def test_where_the_own_limit_has_no_key_the_default_one_holds(serving: Callable[..., Any]) -> None:
    own = Rule("hello", "5/hour", key="hello:{account}", match="/hello", replaces="default")
    asked = Rule("asked", "9/hour", key="search:{user}", match=None)
    with serving([DEFAULT, own, asked], unidentified="admit") as served:
        assert served.statuses("/hello", 3) == [200] * 2 + [429]
    with serving([DEFAULT, own, asked]) as served:
        assert served.statuses("/hello", 1) == [403]


def test_a_changed_file_replaces_from_then_on(tmp_path: Path) -> None:
    of_default = '[[rules]]\nname = "default"\nquota = "2/hour"\nkey = "default:{user}"\n'
    text = of_default + '[[rules]]\nname = "hello"\nquota = "5/hour"\nkey = "hello:{user}"\nmatch = "/hello"\n'
    (path := tmp_path / "rules.toml").write_text(text)
    file = RuleFile(path)
    with FACES["wsgi"](file) as served:
        assert served.statuses("/hello", 3) == [200, 200, 429]
        path.write_text(text + 'replaces = "default"\n')
        assert file.look()
        assert served.statuses("/hello", 4) == [200] * 3 + [429]


# A second middleware charges the refusals of the first: whoever goes on is refused everything
BAN = Rule("ban", "3/hour", key="ban:{user}", charge=[429])
WITHIN = [
    Rule("hello", "2/hour", key="hello:{user}", match="/hello"),
    Rule("s", "9/h", key="search:{user}", match=None),
]


@pytest.mark.parametrize("face", ["asgi", "wsgi", "flask", "fastapi", "quart"])
def test_a_caller_refused_three_times_is_refused_everything(face: str) -> None:
    def around(app: Any) -> Any:
        kind: Any = wsgi if face in everywhere.THREADS else asgi
        identify: Any = (lambda environ: {"user": environ["HTTP_X_USER"]}) if kind is wsgi else user_of
        return kind.RateLimitMiddleware(app, "memory://", [BAN], identify=identify, headers="off")

    with FACES[face](WITHIN, around=around) as served:
        assert served.statuses("/hello", 5) == [200] * 2 + [429] * 3
        assert served.statuses("/search", 2) == [429] * 2
        assert '"ban"' in served.get("/search").text
        assert served.statuses("/search", 4, "bob") == [200] * 4
