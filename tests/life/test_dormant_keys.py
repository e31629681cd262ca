"""Keys that nobody needs come to rest: they are counted, bounded, forgotten in time, and go on when they are needed."""

import asyncio
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore
from tests.aio.loop import run, virtual_loop
from tests.apis.blocking import Api, Blocking
from tests.awaiting import awaited
from tests.sync.stage import Clock, Stage, until

BRIEF = Quota(1000.0, 100)
"""Its leases are over after 75 ms, and the refresher comes before."""
FOR_EVER = float("inf")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key comes to rest as soon as its lease is over."""
    monkeypatch.setattr("batchlimit.reservoir.lifecycle._AWAKE", 0.0)


def supply_of(limiter: RateLimiter | Blocking) -> Any:
    return (limiter if isinstance(limiter, RateLimiter) else limiter._inner)._registry


def come_to_rest(limiter: RateLimiter | Blocking) -> None:
    """Until all keys are dormant, and whoever put them there is done."""
    until(lambda: not supply_of(limiter).entries)
    if isinstance(limiter, Blocking):
        awaited(asyncio.sleep, 0)


@pytest.mark.usefixtures("soon")
def test_a_dormant_key_costs_no_call_and_is_counted(api: Api, clock: Clock) -> None:
    stage = Stage(MemoryStore(clock))
    with api(stage, BRIEF, idle_after=FOR_EVER, clock=clock) as limiter:
        for i in range(200):
            assert limiter.try_acquire(f"key-{i}")
        clock.pass_by(5.0)
        come_to_rest(limiter)
        figures, asks = limiter.statistics(), len(stage.asks)
        assert (figures.keys, figures.admitted, figures.calls) == (200, 200, asks)
        assert "200 keys" in repr(supply_of(limiter)._keyspace)
    assert (len(stage.asks), len(stage.backs)) == (asks, 0)
    assert limiter.statistics().keys == 0


@pytest.mark.usefixtures("soon")
def test_it_goes_on_where_it_ended(api: Api, clock: Clock) -> None:
    """The bucket is told of the epoch that was seen last, or a loss while the key was at rest were none."""
    stage = Stage(MemoryStore(clock))
    stage.after = lambda: clock.pass_by(0.001)
    with api(stage, BRIEF, idle_after=FOR_EVER, clock=clock) as limiter:
        for spent in range(1, 4):
            assert limiter.try_acquire("key")
            clock.pass_by(1.0)
            come_to_rest(limiter)
            figures = limiter.statistics()
            assert (figures.keys, figures.admitted) == (1, spent)
    assert [ask.seq for ask in stage.asks] == [1, 2, 3]
    assert [ask.epoch for ask in stage.asks] == [0] + [stage.grants[0].epoch] * 2
    assert stage.asks[2].round_trip > 0.0


@pytest.mark.usefixtures("soon")
def test_what_is_left_of_a_lease_keeps_it_awake_and_goes_back(api: Api, clock: Clock) -> None:
    stage = Stage(MemoryStore(clock))
    with api(stage, BRIEF, idle_after=FOR_EVER, sizer=FixedBatch(5), clock=clock) as limiter:
        assert limiter.try_acquire("key")
        reservoir = supply_of(limiter).entries["key"].reservoir
        for _ in range(2):  # renewed, for it was in use; and then returned
            assert reservoir.state.lease.held > 0
            clock.now = reservoir.lifecycle.due()
            until(lambda: clock.now < reservoir.lifecycle.due() < FOR_EVER)
        clock.pass_by(5.0)
        come_to_rest(limiter)
        assert stage.backs
        assert stage.peek("key", BRIEF).outstanding == 0
        assert limiter.statistics().admitted == 1


def test_dormant_keys_leave_when_they_are_idle(clock: Clock) -> None:
    with RateLimiter(MemoryStore(clock), BRIEF, clock=clock, idle_after=5.5) as limiter:
        for i in range(600):
            assert limiter.try_acquire(f"key-{i}")
        clock.pass_by(5.0)
        come_to_rest(limiter)
        assert limiter.statistics().keys == 600
        clock.pass_by(10.0)
        until(lambda: limiter.statistics().keys == 0)
        assert limiter.statistics().admitted == 600


@pytest.mark.parametrize("most", [1, 20])
def test_they_make_room_before_those_that_are_awake(api: Api, clock: Clock, most: int) -> None:
    options: Any = {"sizer": FixedBatch(2), "idle_after": FOR_EVER, "max_keys": most}
    with api(MemoryStore(clock), BRIEF, clock=clock, **options) as limiter:
        for i in range(most):
            assert limiter.try_acquire(f"key-{i}")
        clock.pass_by(5.0)
        come_to_rest(limiter)
        assert limiter.statistics().keys == most
        for i in range(most, 2 * most):
            assert limiter.try_acquire(f"key-{i}")
            assert limiter.statistics().keys == most
            assert supply_of(limiter).entries.keys() == {f"key-{j}" for j in range(most, i + 1)}


@pytest.mark.virtual_time
async def test_on_a_loop_all_this_is_done_by_its_one_timer() -> None:
    clock = virtual_loop().time
    async with AsyncRateLimiter(MemoryStore(clock), BRIEF, clock=clock, idle_after=8.0) as limiter:
        assert await limiter.try_acquire("key")
        await asyncio.sleep(1.5)
        assert (limiter._entries, limiter.statistics().keys) == ({}, 1)
        await asyncio.sleep(6.4)
        assert limiter.statistics().keys == 1
        await asyncio.sleep(1.2)
        assert limiter.statistics().keys == 0


def test_they_leave_on_the_next_loop_too() -> None:
    """The timers of the first loop ended with it."""
    begun, limiters = 0.0, list[AsyncRateLimiter]()

    async def first() -> None:
        limiters.append(AsyncRateLimiter(MemoryStore(), BRIEF, clock=lambda: begun + virtual_loop().time()))
        assert await limiters[0].try_acquire("key")
        await asyncio.sleep(1.5)
        assert limiters[0].statistics().keys == 1

    async def second() -> None:
        assert await limiters[0].try_acquire("another")
        await asyncio.sleep(30.0)
        assert limiters[0].statistics().keys == 0

    run(first)
    begun = 2.0
    run(second)
