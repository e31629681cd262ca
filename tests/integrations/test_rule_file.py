"""Web applications go by a file of rules, and by the one that takes its place: rules and quotas together."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, RouteLimit
from batchlimit.integrations.front import AsyncFront
from batchlimit.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from batchlimit.rules import Request, Rule, RuleFile, RulesError
from batchlimit.stores import MemoryStore
from tests.integrations.enforcers import OfEitherApi
from tests.nodes import await_fact

RULE = '[[rules]]\nname = "{0}"\nquota = "{1}"\nkey = "{0}:{{ip}}"\nmatch = {2}\n'
FIRST = RULE.format("login", "1/hour", '"/login"')
SECOND = RULE.format("items", "2/hour", '"/items"')
ROUTE = RULE.format("search", "5/hour", "false")


def put(path: Path, text: str) -> None:
    beside = path.with_name("rules.new")
    beside.write_text(text)
    beside.replace(path)


class Site(OfEitherApi):
    """An enforcer of one of both kinds, whose rules stand in a file."""

    def __init__(self, asynchronous: bool, path: Path) -> None:
        super().__init__(asynchronous)
        self.file = RuleFile(path)
        make: Any = AsyncRateLimiter if asynchronous else RateLimiter
        self.limiter = make(MemoryStore(), self.file)
        self.enforcer: Any = (AsyncEnforcer if asynchronous else Enforcer)(self.limiter, self.file)

    def status(self, path: str) -> int:
        refusal = self._do(self.enforcer.admit, Request("GET", path, {"ip": "192.0.2.1"})).refusal
        return 200 if refusal is None else int(refusal.status)

    def ask(self, key: str) -> int:
        outcome = self._do(self.enforcer.admit, Request("GET", "/", {"ip": "192.0.2.1"}))
        refusal = self._do(self.enforcer.ask, RouteLimit(key), outcome)
        return 200 if refusal is None else int(refusal.status)

    def look(self) -> bool:
        """Read the file anew, as its background thread does: while the loop runs, which puts the quotas in force."""
        return self.file.look() if self._loop is None else self._loop.run(asyncio.to_thread(self.file.look))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    put(path, FIRST)
    return path


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def site(request: pytest.FixtureRequest, path: Path) -> Iterator[Site]:
    made = Site(request.param, path)
    yield made
    made.close()


def test_other_rules_hold_with_their_quotas_from_the_next_request_on(site: Site, path: Path) -> None:
    assert [site.status("/login") for _ in range(2)] == [200, 429]
    assert [site.status("/items") for _ in range(3)] == [200] * 3
    put(path, FIRST.replace("1/hour", "3/hour") + SECOND)
    assert site.look()
    assert [site.status("/items") for _ in range(3)] == [200, 200, 429]
    assert site.status("/login") == 429, "what was used stays used"
    put(path, SECOND)
    site.look()
    assert [site.status("/login") for _ in range(3)] == [200] * 3
    statistics = site.enforcer.statistics()
    assert (statistics.rules["login"].matched, statistics.rules["items"].refused) == (3, 1), "counts stay"


def test_rules_are_obeyed_after_the_limits_that_they_ask_for(path: Path) -> None:
    file, seen = RuleFile(path), list[bool]()

    class Limits:
        def obey(self, said: Any) -> None:
            seen.append(enforcer.rules is said.rules)

    with RateLimiter(MemoryStore(), file) as limiter:
        enforcer = Enforcer(limiter, file)
        file.lead(limits := Limits())
        put(path, SECOND)
        assert file.look()
    assert seen == [True, False], f"{limits} came last"


def test_a_file_without_the_rule_that_a_route_was_checked_for_is_refused_before_it_has_a_request(
    site: Site, path: Path
) -> None:
    put(path, FIRST + ROUTE)
    site.look()
    site.enforcer.check(RouteLimit("search:{ip}"))
    put(path, SECOND)
    assert not site.look()
    assert "search:{ip}" in site.file.problem


def test_a_file_without_the_rule_that_a_route_asks_for_is_refused_whole(site: Site, path: Path) -> None:
    put(path, FIRST + ROUTE)
    site.look()
    assert site.ask("search:{ip}") == 200
    put(path, SECOND)
    assert not site.look()
    assert "search:{ip}" in site.file.problem
    assert (site.ask("search:{ip}"), site.status("/login")) == (200, 200)
    assert site.status("/login") == 429
    assert site.limiter.statistics().rules_failures == 1


def test_a_file_without_rules_of_requests_is_refused(site: Site, path: Path) -> None:
    put(path, '[limits]\n"*" = "1/s"\n')
    assert not site.look()
    assert "no rules of requests" in site.file.problem


@pytest.mark.parametrize(("make", "enforce"), [(RateLimiter, Enforcer), (AsyncRateLimiter, AsyncEnforcer)])
def test_a_limiter_that_would_stay_behind_is_a_mistake(make: Any, enforce: Any, path: Path) -> None:
    file = RuleFile(path)
    with pytest.raises(ValueError, match="the same RuleFile"):
        enforce(make.from_url("memory://", file.rules.quotas), file)


@pytest.mark.parametrize(("face", "make"), [(RateLimitMiddleware, AsyncRateLimiter), (WsgiMiddleware, RateLimiter)])
def test_no_middleware_takes_a_limiter_that_would_stay_behind(face: Any, make: Any, path: Path) -> None:
    with pytest.raises(ValueError, match="the same RuleFile"):
        face(_app, make.from_url("memory://", "100/s"), RuleFile(path))


def test_a_function_that_makes_a_limiter_without_the_file_fails_the_start(path: Path) -> None:
    home = AsyncFront(lambda: AsyncRateLimiter.from_url("memory://", "100/s"), RuleFile(path))
    with pytest.raises(ValueError, match="the same RuleFile"):
        home.open()


def test_messages_have_no_rules_beside_those_of_a_file(path: Path) -> None:
    with pytest.raises(ValueError, match="messages"):
        RateLimitMiddleware(_app, "memory://", RuleFile(path), messages=[Rule("all", "1/s", key="all")])


def test_a_file_without_rules_is_none_for_a_middleware(path: Path) -> None:
    put(path, '[limits]\n"*" = "1/s"\n')
    with pytest.raises(RulesError, match="no rules of requests"):
        WsgiMiddleware(_plain, "memory://", RuleFile(path))


def test_a_wsgi_middleware_watches_its_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batchlimit")
    file = RuleFile(path, watch=True, interval=0.01)
    client = Client(WsgiMiddleware(_plain, "memory://", file))
    assert [_status(client, "/login") for _ in range(2)] == [200, 429]
    put(path, SECOND)
    await_fact(lambda: _status(client, "/items") == 429, "the rules of the file hold")
    assert _status(client, "/login") == 200
    assert "rules.reloaded" in [getattr(each, "batchlimit_event", "") for each in caplog.records]
    file.close()


async def test_an_asgi_middleware_watches_its_file(path: Path) -> None:
    file = RuleFile(path, watch=True, interval=0.01)
    served = RateLimitMiddleware(_app, "memory://", file)
    assert [await _get(served, "/login") for _ in range(2)] == [200, 429]
    put(path, SECOND)
    for _ in range(6000):
        if await _get(served, "/items") == 429:
            break
        await asyncio.sleep(0.01)
    assert (await _get(served, "/items"), await _get(served, "/login")) == (429, 200)
    await served.close()
    file.close()


def _status(client: Client, path: str) -> int:
    return client.get(path, environ_overrides={"REMOTE_ADDR": "192.0.2.1"}).status_code


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _get(app: Any, path: str) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "client": ("192.0.2.1", 1), "root_path": ""}
    await app(scope, receive, send)
    return int(sent[0]["status"])


def _plain(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b""]
