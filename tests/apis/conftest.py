"""Both APIs, each in turn, and a clock that stands still."""

from typing import cast

import pytest

from batchlimit import RateLimiter
from tests.apis.blocking import Api, Blocking
from tests.sync.stage import Clock


@pytest.fixture(params=[RateLimiter, Blocking], ids=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Api:
    """What makes limiters."""
    return cast(Api, request.param)


@pytest.fixture
def clock() -> Clock:
    """Time stands still."""
    return Clock()
