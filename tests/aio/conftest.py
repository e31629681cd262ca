"""A test that is a coroutine runs on a loop of its own, in virtual time unless it is marked `real_time`."""

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from batchlimit import RedisStore
from batchlimit.aio.keeper import Due
from batchlimit.aio.supply import Supply
from tests.aio.loop import VirtualLoop
from tests.servers import Server, Servers, Unavailable


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    factory = None if pyfuncitem.get_closest_marker("real_time") else VirtualLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True


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
def without_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens that no caller asked for, and pauses have no jitter."""

    def ignore(_supply: Supply, _thing: Due) -> None:
        pass

    monkeypatch.setattr(Supply, "watch", ignore)
    monkeypatch.setattr("batchlimit.aio.slot.uniform", lambda _low, _high: 1.0)
