"""No more keys in memory than `max_keys`: the promise is kept all the same, and whoever is needed stays."""

import asyncio
import random
import threading
from collections import defaultdict
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimiter
from batchlimit.base.clock import steady
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.stores import MemoryStore
from batchlimit.sync.registry import Registry
from benchmarks.audited_fleet.audit import Admission, excess
from tests.aio.loop import virtual_loop
from tests.apis.blocking import Api
from tests.depth import depth
from tests.sync.stage import Clock, Gate, Stage, together, until

HUNDRED = Quota(0.001, 100)


class Noting(Stage):
    """Notes which keys were asked for; holds up the ask for one of them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryStore(clock))
        self.keys: list[str] = []
        self.slow: dict[str, Gate] = {}

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        self.keys.append(key)
        if key in self.slow:
            self.slow[key]()
        return super().take(key, quota, ask)


@pytest.mark.parametrize("most", [1, 2, 30])
def test_a_flood_of_keys_leaves_no_more_than_that(api: Api, clock: Clock, most: int) -> None:
    with api(MemoryStore(clock), HUNDRED, clock=clock, max_keys=most, sizer=FixedBatch(5)) as limiter:
        for i in range(300):
            assert limiter.try_acquire(f"key-{i}")
            assert limiter.statistics().keys <= most
        figures = limiter.statistics()
    assert (figures.keys, figures.admitted, figures.refused, figures.calls) == (most, 300, 0, 300)
    assert limiter.statistics().admitted == 300


def test_what_leaves_costs_no_call(api: Api, clock: Clock, without_refresher: None) -> None:
    stage = Stage(MemoryStore(clock))
    with api(stage, HUNDRED, clock=clock, max_keys=10, sizer=FixedBatch(5)) as limiter:
        for i in range(100):
            assert limiter.try_acquire(f"key-{i}")
        assert (len(stage.asks), len(stage.backs)) == (100, 0)


def test_a_key_that_comes_back_is_the_same_instance_with_later_numbers(
    api: Api, clock: Clock, without_refresher: None
) -> None:
    """So the bucket takes for spent what was leased before, and a late duplicate of an ask for nothing."""
    stage = Noting(clock)
    with api(stage, HUNDRED, clock=clock, max_keys=1, sizer=FixedBatch(5)) as limiter:
        for key in ("a", "b", "a", "b", "a"):
            assert limiter.try_acquire(key)
        assert stage.keys == ["a", "b", "a", "b", "a"]
        assert [ask.seq for ask in stage.asks] == [1, 2, 3, 4, 5]
        assert len({ask.instance for ask in stage.asks}) == 1
        assert {ask.held for ask in stage.asks} == {0}
        assert stage.peek("a", HUNDRED).outstanding == 5


def test_a_thread_that_still_has_the_key_entry_gets_nothing_of_it(clock: Clock, without_refresher: None) -> None:
    """It is between two lines of try_acquire while another key comes."""
    stage = Noting(clock)
    limiter = RateLimiter(stage, HUNDRED, clock=clock, max_keys=1, sizer=FixedBatch(5))
    assert limiter.try_acquire("a")
    stale = limiter._entries["a"]
    assert limiter.try_acquire("b")
    assert limiter._try_at(stale, "a", 1)
    assert limiter._entries["a"] is not stale
    assert stage.keys == ["a", "b", "a"]
    assert (stale.tokens.available, stale.reservoir.state.calls) == (0, 1)


def test_a_refund_at_a_key_entry_that_has_just_left_goes_to_the_next(
    clock: Clock, without_refresher: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returned by the one that left, it would say to the bucket that this instance holds nothing."""
    stage = Noting(clock)
    limiter = RateLimiter(stage, HUNDRED, clock=clock, max_keys=1, sizer=FixedBatch(5))
    assert limiter.try_acquire("a", 3)
    stale = limiter._entries["a"]
    assert limiter.try_acquire("b")
    assert not stale.refund(3)
    look, seen = Registry.live_entry, iter([stale])
    monkeypatch.setattr(Registry, "live_entry", lambda registry, key: next(seen, None) or look(registry, key))
    limiter.refund("a", 3)
    assert limiter._entries["a"] is not stale
    assert [(back.refund, back.seq) for back in stage.backs] == [(3, 3)]


@pytest.mark.virtual_time
async def test_a_waiting_task_keeps_its_key() -> None:
    clock = virtual_loop().time
    store, quota = MemoryStore(clock), Quota(1.0, 5)
    async with AsyncRateLimiter(store, quota, clock=clock, max_keys=3, sizer=FixedBatch(5)) as limiter:
        await limiter.acquire("busy", 5)
        callers = [asyncio.create_task(limiter.acquire("busy", 5)) for _ in range(3)]
        await asyncio.sleep(0.01)
        entry = limiter._entries["busy"]
        for i in range(50):
            assert await limiter.try_acquire(f"key-{i}")
        assert limiter._entries["busy"] is entry
        await asyncio.gather(*callers)
        assert limiter.statistics().keys <= 3
    assert store.peek("busy", quota).level == 0


def test_more_keys_at_once_than_there_may_be_in_memory(api: Api, clock: Clock) -> None:
    """Those that a caller holds tokens of stay until it has all of them."""
    with api(MemoryStore(clock), HUNDRED, clock=clock, max_keys=2) as limiter:
        limiter.acquire_all({f"key-{i}": i + 1 for i in range(10)})
        assert limiter.statistics().admitted == 55
        for _ in range(3):
            assert limiter.try_acquire("another")
        limiter.acquire("one more")
        assert limiter.statistics().keys <= 2


def test_idle_keys_make_room_too(api: Api, clock: Clock) -> None:
    with api(MemoryStore(), HUNDRED, idle_after=0.02, max_keys=100) as limiter:
        for i in range(50):
            assert limiter.try_acquire(f"key-{i}")
        until(lambda: limiter.statistics().keys == 0)
        registry: Any = limiter._registry if isinstance(limiter, RateLimiter) else limiter._inner._registry
        assert len(registry._keyspace._cache) == len(registry._keyspace._cache._places) == 0
        assert limiter.statistics().admitted == 50


@pytest.mark.parametrize("seed", range(depth(1, 8)))
def test_whatever_leaves_the_promise_is_kept(api: Api, clock: Clock, seed: int, without_refresher: None) -> None:
    """Every key is asked for more than it has, at instants that are known; nobody looks after leases here."""
    chance = random.Random(seed)
    quota = Quota(100.0, 20)
    admitted: dict[str, list[Admission]] = defaultdict(list)
    spent = returned = 0
    with api(MemoryStore(clock), quota, clock=clock, max_keys=3, sizer=FixedBatch(8)) as limiter:
        for _ in range(1500):
            key, cost = f"key-{chance.randrange(6)}", chance.randrange(1, 5)
            clock.pass_by(chance.choice([0.0, 0.0, 0.001, 0.01, 0.3]))
            if limiter.try_acquire(key, cost):
                spent += cost
                if chance.random() < 0.2:
                    limiter.refund(key, cost)
                    returned += cost
                else:
                    admitted[key].append((clock.now, clock.now, cost))
        assert limiter.statistics().admitted == spent
    assert returned > 0
    assert all(excess(log, quota) == 0.0 for log in admitted.values())
    assert spent > 1000


def test_threads_and_a_key_that_leaves_under_their_feet_keep_the_promise() -> None:
    quota, lock = Quota(2000.0, 50), threading.Lock()
    admitted: dict[str, list[Admission]] = defaultdict(list)
    with RateLimiter(MemoryStore(), quota, max_keys=2, sizer=FixedBatch(10)) as limiter:

        def work() -> int:
            chance, spent = random.Random(threading.get_ident()), 0
            for _ in range(depth(500, 1500)):
                key, before = f"key-{chance.randrange(5)}", steady()
                if limiter.try_acquire(key):
                    spent += 1
                    with lock:
                        admitted[key].append((before, steady(), 1))
            return spent

        spent = sum(together(6, work))
        assert limiter.statistics().admitted >= spent  # a token that was taken too late at a key entry that left counts
        assert limiter.statistics().keys <= 2 + 6
    assert all(excess(log, quota) == 0.0 for log in admitted.values())


def test_what_left_is_no_longer_in_memory() -> None:
    """Nor planned to be looked after: a flood once stood there for as long as keys are kept that nobody uses."""
    with RateLimiter(MemoryStore(), HUNDRED, max_keys=10) as limiter:
        refresher = limiter._registry._refresher
        for i in range(5000):
            assert limiter.try_acquire(f"key-{i}")
            assert len(refresher._inbox) <= 4096
        until(lambda: not refresher._inbox or len(refresher._inbox) < 1024)
        assert len(refresher._plans) <= 256


@pytest.mark.virtual_time
async def test_what_left_is_not_planned_on_a_loop_either() -> None:
    clock = virtual_loop().time
    async with AsyncRateLimiter(MemoryStore(clock), HUNDRED, clock=clock, max_keys=10) as limiter:
        for i in range(1000):
            assert await limiter.try_acquire(f"key-{i}")
        assert len(limiter._registry._home._plans) <= 256


async def test_calls_of_one_turn_leave_no_more_keys_than_there_may_be() -> None:
    async with AsyncRateLimiter(MemoryStore(), HUNDRED, max_keys=10) as limiter:
        assert all(await asyncio.gather(*[limiter.try_acquire(f"key-{i}") for i in range(100)]))
        assert limiter.statistics().keys == 10
