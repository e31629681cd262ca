"""Both APIs, each in turn, a clock that stands still, and a server for one test alone."""

from collections.abc import Iterator
from typing import cast

import pytest

from batchlimit import RateLimiter
from batchlimit.stores import RedisStore
from tests.apis.blocking import Api, Blocking
from tests.servers import SERVERS, Server
from tests.sync.stage import Clock


@pytest.fixture(params=[RateLimiter, Blocking], ids=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Api:
    """What makes limiters."""
    return cast(Api, request.param)


@pytest.fixture
def clock() -> Clock:
    """Time stands still."""
    return Clock()


@pytest.fixture
def private() -> Iterator[Server]:
    """A server for one test alone, which may hold it up."""
    with SERVERS["valkey"]() as url:
        yield Server("private", url)


@pytest.fixture
def private_store(private: Server, prefix: str) -> Iterator[RedisStore]:
    """A store on it, by which a test looks at what the limiters left there."""
    with private.client() as client:
        yield RedisStore(client, prefix=prefix)
