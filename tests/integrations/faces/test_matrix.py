"""Each framework's own manner of asking for a limit, called by hand, with a clock that the test sets."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.headers import Fields
from batchlimit.rules import Rules
from batchlimit.stores import MemoryStore
from tests.integrations.asgi import Reply, call, http, websocket
from tests.integrations.faces.rules import RULES, TYPO, VIEWS
from tests.sync.stage import Clock

FACES = ["fastapi", "litestar", "quart", "starlette"]
ANN = ((b"x-user", b"ann"),)


class Stand:
    """An application and what is behind it, on a loop that runs while it is called."""

    def __init__(self, face: str, **options: Any) -> None:
        self.clock, self._runner = Clock(), asyncio.Runner()
        options = {"headers": Fields(secret=b"s", chance=lambda: 0.0), **options}
        self._runner.run(self._open(import_module(f"tests.integrations.made.{face}"), **options))

    async def _open(self, module: Any, *, typo: bool = False, **options: Any) -> None:
        quotas = Rules(RULES).quotas
        self._limiter = AsyncRateLimiter(MemoryStore(self.clock), quotas, clock=self.clock, sizer=FixedBatch(1))
        self.app, _ = module.made([*VIEWS, *([TYPO] if typo else [])], self._limiter, RULES, **options)

    def call(self, scope: dict[str, Any], *incoming: dict[str, Any]) -> Reply:
        return self._runner.run(call(self.app, scope, *incoming))

    def get(self, path: str, user: bytes = b"ann") -> Reply:
        return self.call(http(path, headers=[(b"x-user", user), (b"host", b"x")]))

    def left(self, key: str) -> int:
        return int(self._runner.run(self._limiter.peek(key)).remaining)

    def close(self) -> None:
        self._runner.run(self._limiter.close())
        self._runner.close()


Make = Callable[..., Stand]


@pytest.fixture(params=FACES)
def stand(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Stand] = []

    def of(**options: Any) -> Stand:
        made.append(Stand(request.param, **options))
        return made[-1]

    yield of
    for each in made:
        each.close()


@pytest.mark.parametrize("path", ["/search", "/included/search", "/mounted/search"])
def test_a_route_is_limited_wherever_it_is_and_admitted_again_when_it_was_told(stand: Make, path: str) -> None:
    at = stand()
    replies = [at.get(path) for _ in range(3)]
    assert [each.status for each in replies] == [200, 200, 429]
    assert [len(each.starts) for each in replies] == [1, 1, 1]
    assert [{name: each.r for name, each in reply.limits.items()} for reply in replies] == [
        {"all": 999, "search": 2},
        {"all": 998, "search": 0},
        {"search": 0},
    ]
    refused = replies[-1]
    assert refused.fields[b"content-type"] == b"application/problem+json"
    assert refused.fields[b"cache-control"] == b"no-store"
    assert int(refused.fields[b"content-length"]) == len(refused.body)
    assert json.loads(refused.body)["violated-policies"] == ["search"]
    assert (at.get(path, b"bob")).status == 200
    at.clock.pass_by(int(refused.fields[b"retry-after"]))
    assert (at.get(path)).status == 200


def test_the_route_says_who_asks(stand: Make) -> None:
    at = stand()
    assert [(at.get("/told", user)).status for user in (b"ann", b"bob", b"eve")] == [200, 200, 429]
    assert at.left("search:told") == 0
    assert at.left("search:ann") == 4


def test_path_parameters_of_the_route_make_keys(stand: Make) -> None:
    at = stand()
    assert [(at.get("/items/7")).status for _ in range(3)] == [200, 200, 429]
    assert (at.get("/items/8")).status == 200


def test_a_stream_is_charged_by_what_was_sent(stand: Make) -> None:
    at = stand()
    reply = at.get("/stream")
    assert reply.body == b"000000000011111111112222222222"
    assert len(reply.starts) == 1
    assert at.left("bytes:ann") == 70


def test_only_failed_logins_are_charged(stand: Make) -> None:
    at = stand()
    statuses = [(at.get(f"/login/{status}")).status for status in (200, 401, 200, 401, 200)]
    assert statuses == [200, 401, 200, 401, 429]


def test_a_route_that_raises_is_a_500_of_its_own_and_is_charged(stand: Make) -> None:
    at = stand()
    for _ in range(2):
        with contextlib.suppress(ZeroDivisionError):  # what the framework does with it is its own affair
            at.get("/broken")
    assert (at.get("/broken")).status == 429


def test_a_websocket_is_refused_before_it_is_accepted(stand: Make) -> None:
    at = stand()
    extensions: list[dict[str, Any]] = [{}, {}, {"websocket.http.response": {}}]
    scopes = [websocket("/ws", extensions=each) for each in extensions]
    for scope in scopes:
        scope["headers"] = ANN
    connect, disconnect = {"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}
    accepted, closed, denied = [at.call(scope, connect, disconnect) for scope in scopes]
    assert accepted.messages[0]["type"] == "websocket.accept"
    assert b"ratelimit" in dict(accepted.messages[0]["headers"])
    assert [(each["type"], each["code"]) for each in closed.messages] == [("websocket.close", 1008)]
    assert denied.status == 429
    assert denied.limits["handshake"].r == 0


def test_a_key_that_no_rule_has_is_a_503_and_told(stand: Make, caplog: pytest.LogCaptureFixture) -> None:
    at = stand(typo=True)
    reply = at.get("/typo")
    assert (reply.status, reply.fields[b"retry-after"]) == (503, b"1")
    assert "'serch:{user}': did you mean 'search:{user}'?" in caplog.text


def test_an_answer_of_the_users_own_holds_for_routes_too(stand: Make) -> None:
    from starlette.responses import PlainTextResponse

    def rejected(scope: Any, refusal: Any) -> Any:
        return PlainTextResponse(f"{refusal.rules[0]}: {refusal.key}", status_code=420)

    at = stand(on_rejected=rejected)
    reply = [at.get("/search") for _ in range(3)][-1]
    assert (reply.status, reply.body) == (420, b"search: search:ann")
    assert reply.limits["search"].r == 0
    assert b"retry-after" in reply.fields
