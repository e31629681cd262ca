"""What a response says of a limit is the limit that holds for its key: of the code, or of an operator's override."""

from collections.abc import Iterator
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.admin import Admin
from batchlimit.batching import FixedBatch
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, RouteLimit
from batchlimit.integrations.headers import Fields, Form
from batchlimit.quota.overrides.known import EVERY
from batchlimit.rules import Request, Rule, Rules
from batchlimit.stores import MemoryStore
from tests.integrations.enforcers import OfEitherApi
from tests.integrations.structured import read_limits
from tests.nodes import await_fact
from tests.sync.stage import Clock

RULES = Rules(
    [
        Rule("user", "10/hour", key="user:{user}", match="/user"),
        Rule("heavy", "10/hour", key="heavy", match="/heavy", cost=5),
        Rule("route", "10/hour", key="route:{user}", match=None),
        Rule("other", "1000/s", key="other", match="/other"),
    ]
)


class Site(OfEitherApi):
    """An enforcer of one of both kinds, and an operator, on one store whose clock stands still."""

    def __init__(self, asynchronous: bool, batch: int, form: Form = "draft-11") -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        super().__init__(asynchronous)
        make: Any = AsyncRateLimiter if asynchronous else RateLimiter
        self.limiter = make(self.store, RULES.quotas, sizer=FixedBatch(batch), clock=self.clock)
        self._enforcer: Any = (AsyncEnforcer if asynchronous else Enforcer)(
            self.limiter, RULES, headers=Fields(form, secret=b"s", wall=lambda: 0.0), clock=self.clock
        )

    def override(self, name: str, quota: str) -> None:
        """Set a quota, and wait until the limiter has heard of it."""
        Admin(self.store, who="ann").set(name, quota)
        await_fact(self._hears, "the limiter heard of it")

    def admit(self, path: str, user: str = "ann") -> Any:
        return self._do(self._enforcer.admit, Request("GET", path, {"user": user}))

    def ask(self, key: str, user: str = "ann") -> Any:
        outcome = self.admit("/", user)
        self._do(self._enforcer.ask, RouteLimit(key), outcome)
        return outcome

    def _hears(self) -> bool:
        self.clock.now += EVERY
        self.admit("/other")
        return bool(self.limiter.rules.revision == self.store.rules.revision)


@pytest.fixture(params=[(False, 1), (False, 5), (True, 1), (True, 5)], ids=str)
def site(request: pytest.FixtureRequest, without_refresher: None) -> Iterator[Site]:
    made = Site(*request.param)
    yield made
    made.close()


def told(headers: Any) -> dict[str, Any]:
    return {name: limit[:2] for name, limit in read_limits(dict(headers)).items()}


def test_fields_tell_the_quota_that_holds_for_each_key(site: Site) -> None:
    site.override("user:ann", "4/minute")
    for _ in range(4):
        assert told(site.admit("/user", "ann").headers) == {"user": (4, 60)}
        assert told(site.admit("/user", "bob").headers) == {"user": (10, 3600)}
    refusal = site.admit("/user", "ann").refusal
    assert told(refusal.headers) == {"user": (4, 60)}
    assert told(site.admit("/user", "bob").headers) == {"user": (10, 3600)}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_legacy_fields_tell_it_too(asynchronous: bool, without_refresher: None) -> None:
    site = Site(asynchronous, 1, "legacy")
    site.override("user:ann", "4/minute")
    assert dict(site.admit("/user").headers)[b"x-ratelimit-limit"] == b"4"
    site.close()
