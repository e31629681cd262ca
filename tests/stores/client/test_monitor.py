"""A store follows in the background which primary the sentinels name: it leaves one that was replaced and lives."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from batchlimit import AsyncRateLimiter, RateLimiter, StoreUnavailable
from batchlimit.bucket.messages import Ask
from batchlimit.quota.quota import Quota
from batchlimit.stores import AsyncRedisStore, RedisStore
from batchlimit.stores.client import sentinel as transports
from batchlimit.stores.client.address import read_url
from batchlimit.stores.client.factory import sentinel_client
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.client.sentinel import AsyncSentinelTransport
from tests.awaiting import BlockingStore
from tests.nodes import Node
from tests.servers import valkey_binary
from tests.sync.stage import KEY, said, together, until
from tests.topologies import Named, named, sentinel

HUNDRED = Quota(0.001, 100)
LONG = 30.0
NEVER = 1000.0
_WORDS = ("EVALSHA",) if redis.__version__.startswith("5.2") else ()  # what a connection is for; nobody looks at it
PATIENCE = {"socket_connect_timeout": LONG, "socket_timeout": LONG}


@pytest.fixture(scope="module")
def pair() -> Iterator[Named]:
    """Two servers, each its own primary, and a sentinel that names one of them."""
    with named(valkey_binary()) as found:
        yield found


@pytest.fixture(autouse=True)
def spacing(monkeypatch: pytest.MonkeyPatch) -> None:
    look_each(0.02, monkeypatch)


def look_each(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "SPACING", seconds)


@contextmanager
def opened(url: str, prefix: str) -> Iterator[list[Any]]:
    """A store on each API, and how to talk to it."""
    with ExitStack() as stack:
        threaded = RedisStore.from_url(url, prefix=f"{prefix}-threads", connect_timeout=LONG, deadline=LONG)
        awaiting = AsyncRedisStore.from_url(url, prefix=f"{prefix}-tasks", connect_timeout=LONG, deadline=LONG)
        stores: list[Any] = [threaded, BlockingStore(awaiting)]
        for store in stores:
            stack.callback(store.close)
        yield stores


def goes_to(node: Node, store: Any) -> bool:
    """Whether the store's next call reaches this server; not while the sentinel knows of no primary."""
    inner = getattr(store, "_inner", store)
    with node.client() as client:
        client.flushall()
        try:
            store.take(KEY, HUNDRED, Ask("a", 1, 1, 1, 1))
        except StoreUnavailable:
            return False
        return bool(client.exists(bucket_name(inner._prefix, KEY)))


class NoPool:
    """The pool of a client whose sentinels nobody has named, as far as a transport knows it."""

    sentinel_manager = SimpleNamespace(sentinels=[])
    service_name, connection_class, connection_kwargs = "service", object, dict[str, Any]()


def client_of(pool: Any) -> Any:
    """A client of redis-py on this pool, as far as a transport knows it."""

    async def aclose() -> None:
        """Nothing is open."""

    return SimpleNamespace(connection_pool=pool, close=lambda: None, aclose=aclose)


@pytest.fixture
def monitors() -> Callable[[], int]:
    """How many threads of monitors there are that this test has begun."""
    before = set(threading.enumerate())
    return lambda: sum(each.name == "batchlimit-monitor" for each in set(threading.enumerate()) - before)


def test_a_primary_that_lives_is_left_when_sentinels_name_another(pair: Named, prefix: str) -> None:
    """Nothing fails and no connection ends: the one that was left answers as before."""
    first, second = pair.nodes
    with opened(pair.url, prefix) as stores:
        for store in stores:
            pair.name(first)
            until(lambda store=store: goes_to(first, store))  # type: ignore[misc]
            pair.name(second)
            until(lambda store=store: goes_to(second, store))  # type: ignore[misc]


def test_a_failover_that_a_sentinel_publishes_is_followed_at_once(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentinels are not asked again in this test's time, and no call is made that could find it out."""
    look_each(NEVER, monkeypatch)
    with sentinel(valkey_binary()) as watched, opened(watched.url, prefix) as stores:
        for store in stores:
            store.peek(KEY, HUNDRED)
        pools = [getattr(store, "_inner", store)._transport.client.connection_pool for store in stores]
        before = watched.primary
        assert [pool.master_address[1] for pool in pools] == [before.port] * 2
        watched.fail_over()
        after = next(each for each in watched.nodes if each is not before)
        until(lambda: [pool.master_address[1] for pool in pools] == [after.port] * 2)


def test_a_connection_that_is_in_use_meanwhile_is_left_after_its_call(pair: Named) -> None:
    first, second = pair.nodes
    address = read_url(pair.url)
    pair.name(first)
    pool: Any = sentinel_client(redis, address, PATIENCE).connection_pool
    used = pool.get_connection(*_WORDS)
    pair.name(second)
    pool.get_master_address()
    assert used._sock is not None
    pool.release(used)
    assert used._sock is None
    again = pool.get_connection(*_WORDS)
    assert again.port == second.port
    pool.release(again)

    async def play() -> None:
        pair.name(first)
        pool: Any = sentinel_client(redis.asyncio, address, PATIENCE).connection_pool
        used = await pool.get_connection(*_WORDS)
        pair.name(second)
        await pool.get_master_address()
        assert used.is_connected
        await pool.release(used)
        assert not used.is_connected
        again = await pool.get_connection(*_WORDS)
        assert again.port == second.port
        await pool.release(again)
        assert again.is_connected, "one to the primary is kept"
        await pool.disconnect()
        for each in pool.sentinel_manager.sentinels:
            await each.aclose()

    asyncio.run(play())
    for each in (pool, *pool.sentinel_manager.sentinels):
        each.close()


def test_a_store_for_threads_has_one_monitor_and_ends_it(pair: Named, prefix: str, monitors: Callable[[], int]) -> None:
    pair.name(pair.nodes[0])
    store = RedisStore.from_url(pair.url, prefix=prefix)
    assert not monitors(), "nothing happens before the first call"
    together(4, lambda: store.peek(KEY, HUNDRED))
    assert monitors() == 1
    store.close()
    until(lambda: not monitors())
    with RateLimiter.from_url(pair.url, "100/s", prefix=prefix) as limiter:
        assert limiter.try_acquire(KEY)
        assert monitors() == 1
    until(lambda: not monitors())


def test_the_monitor_of_an_unclosed_store_ends_with_it(pair: Named, prefix: str, monitors: Callable[[], int]) -> None:
    pair.name(pair.nodes[0])
    store = RedisStore.from_url(pair.url, prefix=prefix)
    store.peek(KEY, HUNDRED)
    assert monitors() == 1
    del store

    def ended() -> bool:
        gc.collect()
        return not monitors()

    until(ended)


def test_a_store_for_tasks_has_one_monitor_and_ends_it(pair: Named, prefix: str) -> None:
    pair.name(pair.nodes[0])

    def tasks() -> int:
        return [each.get_name() for each in asyncio.all_tasks()].count("batchlimit-monitor")

    async def play() -> list[int]:
        async with AsyncRateLimiter.from_url(pair.url, "100/s", prefix=prefix) as limiter:
            before = tasks()
            await asyncio.gather(*(limiter.try_acquire(f"{KEY}-{i}") for i in range(10)))
            amid = tasks()
        return [before, amid, tasks()]

    assert asyncio.run(play()) == [0, 1, 0]


def test_a_cancellation_that_redis_py_loses_ends_the_task_all_the_same() -> None:
    class Deaf(NoPool):
        asked = asyncio.Event()

        async def get_master_address(self) -> None:
            self.asked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def play() -> None:
        transport = AsyncSentinelTransport(client_of(pool))
        call = transport.run("peek", ["key"], [])
        await pool.asked.wait()
        async with asyncio.timeout(LONG):
            await transport.aclose()
        call.close()

    pool = Deaf()
    asyncio.run(play())


def test_a_loop_that_is_closed_under_a_monitor_complains_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(NoPool):
        async def get_master_address(self) -> None:
            await asyncio.Event().wait()

    async def begin() -> None:
        AsyncSentinelTransport(client_of(pool)).run("peek", ["key"], []).close()
        await asyncio.sleep(0)

    pool = Silent()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    with caplog.at_level(logging.DEBUG, "asyncio"):
        del loop
        gc.collect()
    assert caplog.text == ""


def test_a_forked_child_has_a_monitor_of_its_own(pair: Named, prefix: str) -> None:
    pair.name(pair.nodes[0])
    program = """
    limiter = limiter_of("100/s")
    limiter.acquire(KEY)
    def work():
        limiter.acquire("another")
        names = [each.name for each in threading.enumerate()]
        limiter.close()
        return names.count("batchlimit-monitor")
    fork(work)
    say(work())
    """
    assert said(program, pair.url, prefix) == ["1", "1"]


def test_sentinels_that_are_away_are_asked_again(prefix: str) -> None:
    """Calls on open connections continue meanwhile, and switch when the sentinels publish another primary."""
    with named(valkey_binary()) as pair, opened(pair.url, prefix) as stores:
        first, second = pair.nodes
        for store in stores:
            until(lambda store=store: goes_to(first, store))  # type: ignore[misc]
        pair.sentinel.kill()
        for store in stores:
            assert goes_to(first, store)
        pair.sentinel.start()
        pair.name(second)
        for store in stores:
            until(lambda store=store: goes_to(second, store))  # type: ignore[misc]


def test_a_store_that_is_closed_while_its_monitor_asks_leaves_no_connection(
    pair: Named, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py connects a closed client anew."""
    pair.name(pair.nodes[0])
    transport: Any = RedisStore.from_url(pair.url, prefix=prefix)._transport
    pool = transport.client.connection_pool
    ask = pool.get_master_address

    def closed_meanwhile() -> None:
        transport.close()
        ask()

    monkeypatch.setattr(pool, "get_master_address", closed_meanwhile)
    transports._follow(transport._following, transport._sentinels)
    (theirs,) = [each.connection_pool._available_connections for each in pool.sentinel_manager.sentinels]
    assert theirs, "the question was asked"
    assert [each for each in theirs if each._sock is not None] == []


def test_a_store_that_is_closed_while_its_monitor_asks_leaves_no_error() -> None:
    """redis-py raises a TypeError in a thread whose client is closed by another."""

    class Closed(NoPool):
        def get_master_address(self) -> None:
            transport.close()
            raise TypeError("argument must be an int, or have a fileno() method.")

    pool = Closed()
    transport = transports.SentinelTransport(client_of(pool))
    transports._follow(transport._following, transport._sentinels)


def test_where_no_thread_can_be_had_the_store_serves_and_the_next_call_tries_again(
    pair: Named, prefix: str, monitors: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.name(pair.nodes[0])

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    store = RedisStore.from_url(pair.url, prefix=prefix)
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        assert store.peek(KEY, HUNDRED).level == 100
    assert not monitors()
    store.peek(KEY, HUNDRED)
    assert monitors() == 1
    store.close()
