"""Both APIs, each in turn, and a clock that stands still."""

from typing import Any, cast

import pytest

from batchlimit import RateLimiter
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.stores import MemoryStore
from batchlimit.watchers import Rounds
from tests.apis.blocking import Api, Blocking
from tests.apis.keyed import Told
from tests.sync.stage import Clock, Stage


@pytest.fixture(params=[RateLimiter, Blocking], ids=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Api:
    """What makes limiters."""
    return cast(Api, request.param)


@pytest.fixture
def clock() -> Clock:
    """Time stands still."""
    return Clock()


@pytest.fixture
def stage(clock: Clock) -> Stage:
    """Buckets in memory, on the test's clock, and notes of what they were asked."""
    return Stage(MemoryStore(clock))


@pytest.fixture(params=[KeyedConcurrencyLimiter, AsyncKeyedConcurrencyLimiter], ids=["threads", "asyncio"])
def kind(request: pytest.FixtureRequest) -> Any:
    """What makes limiters."""
    return request.param


@pytest.fixture
def seen() -> dict[str, Told]:
    """The watcher of each key."""
    return {"repo:1": Told(), "repo:2": Told()}


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round is made but by `round_of`."""
    monkeypatch.setattr(Rounds, "start", lambda self: None)
