"""Both APIs, each in turn, and a clock that stands still."""

from typing import cast

import pytest

from batchlimit import RateLimiter
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api, Blocking
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
