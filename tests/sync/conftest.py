"""A real Valkey, a clock, and a front without its background thread."""

from collections.abc import Iterator

import pytest

from batchlimit import RedisStore
from batchlimit.sync.keeper import Keeper
from batchlimit.sync.slot import Slot
from tests.servers import Server, Servers, Unavailable
from tests.sync.stage import Clock


@pytest.fixture
def valkey(servers: Servers) -> Server:
    """The one real server of these tests; that all servers behave alike is for tests/stores to show."""
    try:
        return servers.get("valkey")
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def valkey_store(valkey: Server, prefix: str) -> Iterator[RedisStore]:
    """A store on it, by which a test looks at what the limiters left there; its prefix is `prefix`."""
    with valkey.client() as client:
        yield RedisStore(client, prefix=prefix)


@pytest.fixture
def clock() -> Clock:
    """Time stands still."""
    return Clock()


@pytest.fixture
def without_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens in the background, and pauses have no jitter."""

    def ignore(_keeper: Keeper, _slot: Slot) -> None:
        pass

    monkeypatch.setattr(Keeper, "watch", ignore)
    monkeypatch.setattr("batchlimit.sync.slot.uniform", lambda _low, _high: 1.0)
