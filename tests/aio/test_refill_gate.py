"""At a key whose fetches bring many tokens nobody stands in line for one of them, and nobody waits there for long."""

import asyncio

import pytest

from batchlimit import AsyncRateLimiter, LimiterClosed, RateLimited, StoreUnavailable
from batchlimit.batching import FixedBatch
from tests.aio.loop import virtual_loop
from tests.aio.stage import KEY, Gate, Stage, in_line, limiter_on, nothing

pytestmark = pytest.mark.usefixtures("without_refresher")
RICH = "1_000_000/s burst 1_000_000"
BATCH = 100
DEADLINE = 0.8
PATIENCE = DEADLINE / 8


async def at_an_empty_key(stage: Stage, batch: int = BATCH) -> AsyncRateLimiter:
    """The last fetch brought a batch, and it is gone."""
    limiter = limiter_on(stage, RICH, sizer=FixedBatch(batch), deadline=DEADLINE)
    await limiter.acquire(KEY)
    await limiter.acquire(KEY, batch - 1)
    return limiter


async def one_fetches(stage: Stage, limiter: AsyncRateLimiter) -> tuple[Gate, "asyncio.Task[bool]"]:
    gate = stage.before = Gate()
    first = asyncio.create_task(limiter.try_acquire(KEY))
    await gate.await_someone()
    return gate, first


async def come(limiter: AsyncRateLimiter, tasks: int, cost: int = 1) -> list["asyncio.Task[bool]"]:
    """Return when they have gone as far as they can."""
    calls = [asyncio.create_task(limiter.try_acquire(KEY, cost)) for _ in range(tasks)]
    await asyncio.sleep(0)
    return calls


async def test_one_fetches_and_all_others_find_tokens_there() -> None:
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    gate, first = await one_fetches(stage, limiter)
    calls = await come(limiter, BATCH - 1)
    assert limiter.statistics().waiting == 1
    asks = len(stage.asks)
    gate.open()
    assert all(await asyncio.gather(first, *calls))
    assert len(stage.asks) == asks


@pytest.mark.parametrize(("tasks", "waiting"), [(20, 1), (2 * BATCH, 1 + 2 * BATCH)], ids=["room", "no room"])
async def test_all_are_served_in_the_order_in_which_they_came(tasks: int, waiting: int) -> None:
    """Where there is no room for all, who came too late to wait here once was in line before who did."""
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    gate, first = await one_fetches(stage, limiter)
    served: list[int] = []

    async def call(number: int) -> None:
        await limiter.acquire(KEY)
        served.append(number)

    calls = [asyncio.create_task(call(number)) for number in range(tasks)]
    await asyncio.sleep(0)
    await in_line(limiter, waiting)
    gate.open()
    await asyncio.gather(first, *calls)
    assert served == list(range(tasks))


async def test_more_than_a_fetch_brings_stand_in_line_for_the_next_ask_to_know_of_them() -> None:
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    gate, first = await one_fetches(stage, limiter)
    calls = await come(limiter, 3 * BATCH)
    await in_line(limiter, 1 + 3 * BATCH)
    asks = len(stage.asks)
    gate.open()
    assert all(await asyncio.gather(first, *calls))
    assert stage.asks[asks].queued >= BATCH


async def test_an_ask_that_leaves_as_soon_as_the_one_before_has_ended_is_waited_for_here_too() -> None:
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    gate, first = await one_fetches(stage, limiter)
    large = await come(limiter, 1, BATCH)
    next_gate = stage.before = Gate()
    gate.open()
    await next_gate.await_someone()
    assert limiter.statistics().waiting == 1
    calls = await come(limiter, 5)
    assert limiter.statistics().waiting == 1
    next_gate.open()
    assert all(await asyncio.gather(first, *large, *calls))


@pytest.mark.parametrize(("batch", "cost", "waiting"), [(63, 1, 2), (64, 1, 1), (127, 2, 2), (128, 2, 1)])
async def test_only_who_wants_a_small_part_of_a_fetch_waits_here(batch: int, cost: int, waiting: int) -> None:
    stage = Stage()
    limiter = await at_an_empty_key(stage, batch)
    gate, first = await one_fetches(stage, limiter)
    calls = await come(limiter, 1, cost)
    assert limiter.statistics().waiting == waiting
    gate.open()
    assert all(await asyncio.gather(first, *calls))


async def test_after_a_slow_fetch_the_line_it_is() -> None:
    """Where each takes long, the next ask is to know of all who wait."""
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    stage.before = lambda: asyncio.sleep(PATIENCE)
    assert await limiter.try_acquire(KEY)
    assert await limiter.try_acquire(KEY, BATCH - 1)
    gate, first = await one_fetches(stage, limiter)
    calls = await come(limiter, 5)
    assert limiter.statistics().waiting == 6
    gate.open()
    assert all(await asyncio.gather(first, *calls))


async def test_who_finds_nothing_there_for_long_stands_in_line() -> None:
    """Those ahead take all there is, one after the other: in line each has a token at a time."""
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    stage.before = lambda: asyncio.sleep(0.6 * PATIENCE)

    async def hurry() -> None:
        for _ in range(3 * BATCH):
            assert await limiter.try_acquire(KEY)

    begun, hurrying = virtual_loop().time(), asyncio.gather(*(hurry() for _ in range(5)))
    await in_line(limiter, 1)
    assert await limiter.try_acquire(KEY)
    assert virtual_loop().time() - begun == pytest.approx(3 * 0.6 * PATIENCE)
    await hurrying


async def test_nobody_waits_here_for_long_for_a_store_that_hangs() -> None:
    """All who wait are in line soon. One without time fails with the request, the others when the circuit opens."""
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    begun = virtual_loop().time()
    _, first = await one_fetches(stage, limiter)
    calls = [asyncio.create_task(limiter.acquire(KEY)) for _ in range(5)]
    await in_line(limiter, 1)
    await asyncio.sleep(PATIENCE)
    await in_line(limiter, 6)
    assert await first is False
    assert virtual_loop().time() - begun == pytest.approx(DEADLINE)
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, StoreUnavailable) for error in errors)
    assert virtual_loop().time() - begun == pytest.approx(3 * DEADLINE)


@pytest.mark.parametrize("timeout", [PATIENCE / 2, PATIENCE, PATIENCE * 1.5, PATIENCE * 3])
async def test_a_timeout_ends_where_it_ought_to(timeout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # a timer it takes: who is in line hears from it that its time is over
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    _, first = await one_fetches(stage, limiter)
    begun = virtual_loop().time()
    with pytest.raises(RateLimited):
        await limiter.acquire(KEY, timeout=timeout)
    assert virtual_loop().time() - begun == pytest.approx(timeout)
    first.cancel()
    stage.before = nothing


async def test_who_is_cancelled_leaves_alone_and_at_once() -> None:
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    gate, first = await one_fetches(stage, limiter)
    calls = await come(limiter, 10)
    calls[3].cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls.pop(3)
    assert not any(call.done() for call in calls)
    gate.open()
    assert all(await asyncio.gather(first, *calls))
    assert limiter.statistics().admitted == BATCH + 10


async def test_who_closes_fails_them_at_once() -> None:
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    gate, first = await one_fetches(stage, limiter)
    calls = [asyncio.create_task(limiter.acquire(KEY)) for _ in range(5)]
    await asyncio.sleep(0)
    begun = virtual_loop().time()
    closing = asyncio.create_task(limiter.close())
    with pytest.raises(LimiterClosed):
        await calls[0]
    assert virtual_loop().time() == begun
    assert not closing.done()
    gate.open()
    await closing
    errors = await asyncio.gather(first, *calls, return_exceptions=True)
    assert all(isinstance(error, LimiterClosed) for error in errors)


async def test_of_a_failure_all_hear_at_once() -> None:
    """Wave by wave they once asked again: one failure was three, and the store was given up."""
    stage = Stage()
    limiter = await at_an_empty_key(stage)
    gate = Gate()

    async def fail() -> None:
        await gate()
        raise StoreUnavailable("away")

    stage.before = fail
    first = asyncio.create_task(limiter.try_acquire(KEY))
    await gate.await_someone()
    calls = await come(limiter, BATCH // 2)
    asks = len(stage.asks)
    gate.open()
    assert not any(await asyncio.gather(first, *calls))
    assert len(stage.asks) == asks + 1, "by the first of those who were not in line"
    stage.before = nothing
