"""Stores and servers as fixtures; a server that this machine lacks skips its tests, and the reason is shown."""

import gc
import logging
import math
import os
import sys
import time
from collections.abc import Generator, Iterator
from typing import Any, cast

import pytest
from fakeredis import FakeAsyncRedis, FakeRedis
from hypothesis import HealthCheck, settings

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.admin import Admin
from batchlimit.shared import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter
from batchlimit.stores import outage
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.embedded import AsyncEmbeddedStore, EmbeddedStore
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from batchlimit.stores.protocols import Store
from batchlimit.stores.redis import RedisStore
from batchlimit.testing import fresh_prefix
from tests.aio.loop import run_test
from tests.apis.blocking import Api, Blocking
from tests.awaiting import BlockingStore
from tests.depth import depth
from tests.distance import far
from tests.programs import Unavailable
from tests.servers import SERVERS, Server, Servers
from tests.sync.stage import Clock, Stage
from tests.topologies import TOPOLOGIES

# Limiters that tests leave open close at the end of the interpreter, and say that their stores are away.
logging.getLogger("batchlimit").addHandler(logging.NullHandler())
OPENED: list[Any] = [RateLimiter, AsyncRateLimiter, RedisStore, AsyncRedisStore, EmbeddedStore, AsyncEmbeddedStore]
OPENED += [SharedConcurrencyLimiter, AsyncSharedConcurrencyLimiter, Admin]

# Imports and collected tests are here to stay: to look for garbage among them took a quarter of the time of collecting.
gc.disable()

# How long an example takes says how busy the machine is. And each run plays the same examples: a new one that fails is
# to be found by whoever looks for it, with --hypothesis-profile=search, and not by whoever merges something else.
settings.register_profile("search", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "steady", settings.get_profile("search"), derandomize=True, database=None, max_examples=depth(30, 100)
)
settings.load_profile("steady")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: four workers on two processors, because tests wait for servers and processes much of their time."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 * processors


def pytest_collection_finish() -> None:
    """Freeze what imports and collected tests left: half a million objects that the garbage collector skips then."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Freeze what pytest keeps of the tests of a file, too."""
    if nextitem is not None and nextitem.path != item.path:
        pytest_collection_finish()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs on a loop of its own, in virtual time if it is marked `virtual_time`."""
    return run_test(pyfuncitem, is_virtual=pyfuncitem.get_closest_marker("virtual_time") is not None)


def _skipped_where_unavailable() -> Generator[None, object, object]:
    """A test or a fixture may ask for what this machine lacks: that skips the test, and the reason is shown."""
    try:
        return (yield)
    except Unavailable as reason:
        pytest.skip(str(reason))


pytest_runtest_setup = pytest_runtest_call = pytest.hookimpl(wrapper=True)(_skipped_where_unavailable)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The real servers by name, each started when it is first needed."""
    servers = Servers({**SERVERS, **TOPOLOGIES})
    yield servers
    servers.close()


@pytest.fixture(scope="session", autouse=True)
def generous_timeouts() -> Iterator[None]:
    """Unless a test says otherwise a store has 30 s to answer, and to connect to: a slow machine is not away."""
    ways = [getattr(kind, name) for kind in OPENED for name in ("__init__", "from_url") if hasattr(kind, name)]
    defaults = [each.__kwdefaults__ for each in ways]
    before = [dict(each) for each in defaults]
    for each in defaults:
        each.update(dict.fromkeys(each.keys() & {"deadline", "connect_timeout"}, 30.0))
    yield
    for each, told in zip(defaults, before, strict=True):
        each.update(told)


@pytest.fixture
def without_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the store fails, the next call asks it."""
    monkeypatch.setattr(outage, "THRESHOLD", math.inf)


@pytest.fixture
def clock() -> Clock:
    """Time stands still until a test lets it pass."""
    return Clock()


@pytest.fixture
def stage(clock: Clock) -> Stage:
    """Buckets in memory, on the test's clock, and notes of what they were asked."""
    return Stage(MemoryStore(clock))


@pytest.fixture(params=[RateLimiter, Blocking], ids=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Api:
    """What makes limiters of either API, with one face."""
    return cast(Api, request.param)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads that lose the GIL wherever they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def prefix() -> str:
    """A part of the server's keys for this test alone, so that nothing needs to be flushed."""
    return fresh_prefix()


# The newest server and the oldest, unless asked for more.
_USUAL = ["valkey", "redis-6.2"]


@pytest.fixture(params=depth(_USUAL, list(SERVERS)))
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    """Each of the real servers."""
    return servers.get(request.param)


@pytest.fixture
def redis_store(server: Server, prefix: str) -> Iterator[RedisStore]:
    """A store on each of the real servers."""
    yield from _redis_store(server, prefix)


_STORES = ["memory", "fakeredis", *depth([*_USUAL, "cluster"], [*SERVERS, *TOPOLOGIES])]
# The client for tasks meets one server; that all servers answer alike, the one for threads shows.
_AWAITED = depth(["valkey"], ["memory", "fakeredis", *SERVERS, "cluster"])


@pytest.fixture(params=[*_STORES, *(f"{name} awaited" for name in _AWAITED)])
def store(request: pytest.FixtureRequest, servers: Servers, prefix: str) -> Iterator[Store]:
    """Every store there is, for threads and for tasks."""
    name, _, awaited = request.param.partition(" ")
    if name == "memory":
        memory = MemoryStore(clock=time.monotonic)
        yield BlockingStore(AsyncMemoryStore(memory)) if awaited else memory
    elif name == "fakeredis":
        yield BlockingStore(AsyncRedisStore(FakeAsyncRedis())) if awaited else RedisStore(FakeRedis())
    elif awaited:
        yield from _awaited_store(servers.get(name), prefix)
    elif name in TOPOLOGIES:
        yield from _opened_store(servers.get(name), prefix)
    else:
        yield from _redis_store(servers.get(name), prefix)


@pytest.fixture
def valkey(servers: Servers) -> Server:
    """The one real server of tests of the APIs; that all servers behave alike is for tests/stores to show."""
    return servers.get("valkey")


@pytest.fixture
def valkey_store(valkey: Server, prefix: str) -> Iterator[RedisStore]:
    """A store on it, by which a test looks at what the limiters left there; its prefix is `prefix`."""
    yield from _redis_store(valkey, prefix)


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances say that their server is 2 s away, so that leases last 4 s: a machine that stalls loses no token."""
    monkeypatch.setattr("batchlimit.reservoir.requests.Ask", far)


@pytest.fixture(params=["memory", "valkey"])
def lasting_store(request: pytest.FixtureRequest, far_away: None) -> Store:
    """Buckets in this process, and on a real server; their time is not the limiters', and leases last 4 s of it."""
    if request.param == "memory":
        return MemoryStore()
    found: RedisStore = request.getfixturevalue("valkey_store")
    return found


@pytest.fixture
def without_refresher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens in the background, on either API, and pauses have no jitter."""

    def ignore(_refresher: object, _due: object) -> None:
        pass

    monkeypatch.setattr("batchlimit.sync.refresher.Refresher.watch", ignore)
    monkeypatch.setattr("batchlimit.aio.home.Home.watch", ignore)
    for drawn in ("sync.key_entry.KeyEntry.uniform", "aio.key_entry.uniform"):
        monkeypatch.setattr(f"batchlimit.{drawn}", staticmethod(lambda _low, _high: 1.0))


def _awaited_store(server: Server, prefix: str) -> Iterator[Store]:
    store = BlockingStore(AsyncRedisStore.from_url(server.url, prefix=prefix, connect_timeout=30.0, deadline=30.0))
    yield store
    store.close()


def _opened_store(server: Server, prefix: str) -> Iterator[Store]:
    store = RedisStore.from_url(server.url, prefix=prefix, connect_timeout=30.0, deadline=30.0)
    yield store
    store.close()


def _redis_store(server: Server, prefix: str) -> Iterator[RedisStore]:
    with server.client() as client:
        store = RedisStore(client, prefix=prefix)
        yield store
        store.close()
