"""A store that is slow, for tasks: nobody waits longer than the budget, and nothing is spent twice."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from batchlimit import StoreUnavailable
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.stores import outage
from batchlimit.stores.client.deadline import WatchPaused
from tests.aio.loop import virtual_loop
from tests.aio.stage import KEY, Gate, Stage, away, limiter_on, nothing


async def test_who_asks_a_store_that_hangs_leaves_in_time() -> None:
    stage = Stage()
    limiter = limiter_on(stage, deadline=0.05)
    await limiter.acquire("another")
    stage.before = Gate()
    begun = virtual_loop().time()
    with pytest.raises(StoreUnavailable, match=r"stage:// did not answer in time \(0.05 s\)") as caught:
        await limiter.decide(KEY)
    assert caught.value.code == "TIMEOUT"
    assert virtual_loop().time() - begun == pytest.approx(0.05)


async def test_the_first_answer_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has to connect first. So may later ones, a little, of a store that does not tell when it does."""
    stage = Stage()
    monkeypatch.setattr(Stage, "is_prompt", False)
    limiter = limiter_on(stage, deadline=0.05)
    for seconds in (1.05, 0.3, 0.3, 0.05):
        stage.before = Gate()
        begun = virtual_loop().time()
        assert not await limiter.try_acquire(KEY)
        assert virtual_loop().time() - begun == pytest.approx(seconds)
        stage.before = nothing
        if seconds == 1.05:
            assert await limiter.try_acquire("another")


async def test_waiting_for_a_connection_is_not_the_servers_time() -> None:
    """Until it fails, or that has taken five deadlines."""
    stage = Stage()
    limiter = limiter_on(stage, deadline=0.05)
    await limiter.acquire("another")

    async def connect(seconds: float) -> None:
        with WatchPaused():
            await asyncio.sleep(seconds)
        await asyncio.sleep(0.04)

    for seconds, taken, admitted in ((0.2, 0.24, True), (9.0, 0.25, False), (9.0, 0.25, False), (9.0, 0.05, False)):
        stage.before = partial(connect, seconds)
        begun = virtual_loop().time()
        assert await limiter.try_acquire(KEY) is admitted
        assert virtual_loop().time() - begun == pytest.approx(taken)


async def test_all_in_line_leave_when_the_circuit_opens() -> None:
    """Three asks that have no answer open it; a caller that takes the first answer leaves after one deadline."""
    stage = Stage()
    limiter = limiter_on(stage, deadline=0.05)
    await limiter.acquire("another")
    stage.before = Gate()
    begun = virtual_loop().time()
    line = [asyncio.create_task(limiter.acquire(KEY)) for _ in range(50)]
    await asyncio.sleep(0.03)
    line += [asyncio.create_task(limiter.acquire(KEY)) for _ in range(50)]
    assert not await limiter.try_acquire(KEY)
    assert virtual_loop().time() - begun == pytest.approx(0.05)
    errors = await asyncio.gather(*line, return_exceptions=True)
    assert all(isinstance(error, StoreUnavailable) for error in errors)
    assert virtual_loop().time() - begun == pytest.approx(0.15)
    assert limiter.statistics().failures == 3


async def test_probes_go_one_at_a_time_and_ever_rarer() -> None:
    stage = Stage()
    at: list[float] = []

    async def probe() -> None:
        at.append(virtual_loop().time())
        if len(at) < 12:
            raise StoreUnavailable("still away")

    stage.before_probe = probe
    limiter = limiter_on(stage)
    stage.before = away
    for _ in range(20):
        assert not await limiter.try_acquire(KEY)
    assert len(stage.asks) == 3
    begun = virtual_loop().time()
    await asyncio.sleep(30.0)
    assert limiter.statistics().available
    waits = [after - before for before, after in zip([begun, *at], at, strict=False)]
    assert len(waits) == 12
    assert 0.05 <= waits[0] <= 0.15
    for least, wait in zip([0.1, 0.2, 0.4, 0.8, *[1.0] * 7], waits[1:], strict=True):
        assert least - 1e-6 <= wait <= least + 0.1 + 1e-6


async def test_what_one_cause_failed_is_one_failure() -> None:
    """Many calls may be on one connection; that one ended is no reason to give the store up."""
    stage = Stage()
    limiter = limiter_on(stage)
    cause = ConnectionResetError()

    async def cut() -> None:
        raise StoreUnavailable("cut") from cause

    stage.before = cut
    for failures in (1, 2):
        assert not any(await asyncio.gather(*(limiter.try_acquire(f"{KEY}-{i}") for i in range(8))))
        assert limiter.statistics().failures == failures
        assert limiter.statistics().available
        cause = ConnectionResetError()
    stage.before = away
    assert not any(await asyncio.gather(*(limiter.try_acquire(f"{KEY}-{i}") for i in range(8))))
    assert not limiter.statistics().available


async def test_a_probe_that_hangs_is_given_up_and_sent_again() -> None:
    stage = Stage()
    limiter = limiter_on(stage, deadline=0.05)
    await limiter.acquire("another")
    stage.before = away
    stage.before_probe = Gate()
    for _ in range(3):
        assert not await limiter.try_acquire(KEY)
    await asyncio.sleep(10.0)
    assert stage.probes > 3
    stage.before_probe = stage.before = nothing
    await asyncio.sleep(3.0)
    assert await limiter.try_acquire(KEY)


async def test_who_closes_ends_the_prober() -> None:
    stage = Stage()
    stage.before = stage.before_probe = away
    limiter = limiter_on(stage)
    for _ in range(3):
        assert not await limiter.try_acquire(KEY)
    assert len(asyncio.all_tasks()) == 2
    await limiter.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_breaker_that_an_ask_closed_needs_its_prober_no_more() -> None:
    """And the next outage has one of its own."""
    stage = Stage()
    guard = GuardedStore(stage, 1.0)
    gate = stage.before_probe = Gate()
    for _ in range(3):
        guard._failed("", KEY, StoreUnavailable("away"))
    await gate.await_someone()
    guard._answered("")
    assert guard.health.available
    second = stage.before_probe = Gate()
    for _ in range(3):
        guard._failed("", KEY, StoreUnavailable("away again"))
    await second.await_someone()
    gate.open()
    await asyncio.sleep(0.1)
    assert not guard.health.available
    second.open()
    await asyncio.sleep(0.1)
    assert guard.health.available
    await guard.stop()


async def test_a_prober_whose_cancellation_the_store_loses_ends_all_the_same() -> None:
    """`wait_for` of Python 3.11, which redis-py calls, loses one now and then: `close` then waited for ever."""
    asked = asyncio.Event()

    async def deaf() -> None:
        if not asked.is_set():
            asked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        raise StoreUnavailable("away")

    stage = Stage()
    limiter = limiter_on(stage, deadline=0.05)
    stage.before, stage.before_probe = away, deaf
    for _ in range(3):
        assert not await limiter.try_acquire(KEY)
    await asked.wait()
    async with asyncio.timeout(100):
        await limiter.close()


async def test_where_no_prober_can_be_started_a_call_is_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
        if "_probe" in repr(work):
            raise LookupError("no such tasks")
        return asyncio.Task(work, loop=loop, **options)

    stage = Stage()
    stage.before = away
    limiter = limiter_on(stage)
    monkeypatch.setattr(outage, "steady", virtual_loop().time)
    asyncio.get_running_loop().set_task_factory(factory)
    with pytest.raises(StoreUnavailable, match=r"^away$"):
        await asyncio.wait_for(limiter.acquire(KEY), 60.0)
    stage.before = nothing
    await asyncio.sleep(outage.WITHOUT)
    assert await limiter.try_acquire(KEY)
    assert limiter.statistics().available
