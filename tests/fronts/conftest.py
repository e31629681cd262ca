"""Both fronts, each in turn; a clock, a real Valkey, and nothing in the background."""

from collections.abc import Iterator
from typing import cast

import pytest

from batchlimit import RateLimiter, RedisStore
from batchlimit.aio.supply import Supply
from batchlimit.sync.keeper import Keeper
from tests.fronts.blocking import Blocking, Front
from tests.servers import Server, Servers, Unavailable
from tests.sync.stage import Clock


@pytest.fixture(params=[RateLimiter, Blocking], ids=["threads", "asyncio"])
def front(request: pytest.FixtureRequest) -> Front:
    """What makes limiters."""
    return cast(Front, request.param)


@pytest.fixture
def valkey(servers: Servers) -> Server:
    """The one real server of these tests."""
    try:
        return servers.get("valkey")
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def valkey_store(valkey: Server, prefix: str) -> Iterator[RedisStore]:
    """A store on it; its prefix is `prefix`."""
    with valkey.client() as client:
        yield RedisStore(client, prefix=prefix)


@pytest.fixture
def clock() -> Clock:
    """Time stands still."""
    return Clock()


@pytest.fixture
def without_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens in the background, and pauses have no jitter."""

    def ignore(_keeper: object, _due: object) -> None:
        pass

    monkeypatch.setattr(Keeper, "watch", ignore)
    monkeypatch.setattr(Supply, "watch", ignore)
    for front in ("sync", "aio"):
        monkeypatch.setattr(f"batchlimit.{front}.slot.uniform", lambda _low, _high: 1.0)
