"""Web applications go by a file of rules, and by the one that takes its place: rules and quotas together."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.admin import Admin
from batchlimit.batching import FixedBatch
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, RouteLimit
from batchlimit.integrations.front import AsyncFront
from batchlimit.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from batchlimit.quota.overrides.known import EVERY
from batchlimit.rules import Request, Rule, RuleFile, Rules, RulesError
from batchlimit.stores import MemoryStore
from tests.apis.test_rule_file import put
from tests.integrations.asgi import Hello
from tests.integrations.enforcers import OfEitherApi
from tests.integrations.everywhere import FACES
from tests.integrations.structured import read_limits
from tests.integrations.test_wsgi import App
from tests.nodes import await_fact
from tests.sync.stage import Clock

RULE = '[[rules]]\nname = "{0}"\nquota = "{1}"\nkey = "{0}:{{ip}}"\nmatch = {2}\n'
FIRST = RULE.format("login", "1/hour", '"/login"')
SECOND = RULE.format("items", "2/hour", '"/items"')
ROUTE = RULE.format("search", "5/hour", "false")


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


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "checked at the start"])
def test_a_file_without_the_rule_of_a_route_is_refused_whole(site: Site, path: Path, is_asked: bool) -> None:
    put(path, FIRST + ROUTE)
    site.look()
    assert site.ask("search:{ip}") == 200 if is_asked else site.enforcer.check(RouteLimit("search:{ip}")) is None
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


@pytest.mark.parametrize(
    ("kind", "face"),
    [
        (RateLimiter, Enforcer),
        (AsyncRateLimiter, AsyncEnforcer),
        (RateLimiter, lambda *given: WsgiMiddleware(App(), *given)),
        (AsyncRateLimiter, lambda *given: RateLimitMiddleware(Hello(), *given)),
    ],
)
def test_a_limiter_that_would_stay_behind_is_a_mistake(kind: Any, face: Any, path: Path) -> None:
    file = RuleFile(path)
    with pytest.raises(ValueError, match="the same RuleFile"):
        face(kind.from_url("memory://", file.rules.quotas), file)


def test_a_function_that_makes_a_limiter_without_the_file_fails_the_start(path: Path) -> None:
    home = AsyncFront(lambda: AsyncRateLimiter.from_url("memory://", "100/s"), RuleFile(path))
    with pytest.raises(ValueError, match="the same RuleFile"):
        home.open()


def test_messages_have_no_rules_beside_those_of_a_file(path: Path) -> None:
    with pytest.raises(ValueError, match="messages"):
        RateLimitMiddleware(Hello(), "memory://", RuleFile(path), messages=[Rule("all", "1/s", key="all")])


def test_a_file_without_rules_is_none_for_a_middleware(path: Path) -> None:
    put(path, '[limits]\n"*" = "1/s"\n')
    with pytest.raises(RulesError, match="no rules of requests"):
        WsgiMiddleware(App(), "memory://", RuleFile(path))


@pytest.mark.parametrize("face", ["asgi", "wsgi"])
def test_a_middleware_watches_its_file(face: str, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batchlimit")
    with closing(RuleFile(path, watch=True, interval=0.01)) as file, FACES[face](file) as served:
        assert [status == 429 for status in served.statuses("/login", 2)] == [False, True]
        put(path, SECOND)
        await_fact(lambda: served.get("/items").status == 429, "the rules of the file hold")
        assert served.get("/login").status != 429
    assert "rules.reloaded" in [getattr(each, "batchlimit_event", "") for each in caplog.records]


# What a response says of a limit is the limit that holds for its key: of the code, or of an operator's override
OVERRIDDEN = Rules([Rule("user", "10/hour", key="user:{user}", match="/user"), Rule("other", "1000/s", key="other")])


class OverriddenSite(OfEitherApi):
    """An enforcer of one of both kinds, and an operator, on one store whose clock stands still."""

    def __init__(self, asynchronous: bool, batch: int) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        super().__init__(asynchronous)
        make: Any = AsyncRateLimiter if asynchronous else RateLimiter
        self.limiter = make(self.store, OVERRIDDEN.quotas, sizer=FixedBatch(batch), clock=self.clock)
        self._enforcer: Any = (AsyncEnforcer if asynchronous else Enforcer)(self.limiter, OVERRIDDEN, clock=self.clock)

    def override(self, name: str, quota: str) -> None:
        """Set a quota, and wait until the limiter has heard of it."""
        Admin(self.store, who="ann").set(name, quota)
        await_fact(self._hears, "the limiter heard of it")

    def told(self, path: str, user: str = "ann") -> Any:
        """What the fields of a request say of the limit of its user."""
        outcome = self._do(self._enforcer.admit, Request("GET", path, {"user": user}))
        headers = outcome.headers if outcome.refusal is None else outcome.refusal.headers
        return read_limits(dict(headers))["user"][:2] if path == "/user" else None

    def _hears(self) -> bool:
        self.clock.now += EVERY
        self.told("/other")
        return bool(self.limiter.rules.revision == self.store.rules.revision)


@pytest.fixture(params=[(False, 1), (False, 5), (True, 1), (True, 5)], ids=str)
def overridden(request: pytest.FixtureRequest, without_refresher: None) -> Iterator[OverriddenSite]:
    made = OverriddenSite(*request.param)
    yield made
    made.close()


def test_fields_tell_the_quota_that_holds_for_each_key(overridden: OverriddenSite) -> None:
    overridden.override("user:ann", "4/minute")
    found = [(overridden.told("/user", "ann"), overridden.told("/user", "bob")) for _ in range(5)]
    assert found == [((4, 60), (10, 3600))] * 5, "of a refusal too: the fifth of ann is one"
