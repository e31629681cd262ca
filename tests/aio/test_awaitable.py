"""An answer that nobody awaited is no permission; in everything else it is a coroutine."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from batchlimit import AsyncRateLimiter, Quota
from batchlimit.batching import FixedBatch
from tests.aio.stage import KEY, SLOW, Stage, limiter_on

CALLS: dict[str, Callable[[AsyncRateLimiter], Awaitable[object]]] = {
    "try_acquire": lambda limiter: limiter.try_acquire(KEY),
    "decide": lambda limiter: limiter.decide(KEY),
    "peek": lambda limiter: limiter.peek(KEY),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("state", ["cold", "warm", "dry"])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_forgotten_await_is_an_error(call: Callable[[AsyncRateLimiter], Awaitable[object]], state: str) -> None:
    limiter = limiter_on(Stage())
    if state != "cold":
        await limiter.acquire(KEY, 10)
        assert not await limiter.try_acquire(KEY)
    if state == "warm":
        await limiter.refund(KEY, 5)
    answer = call(limiter)
    for judge in (bool, lambda each: not each, lambda each: 1 if each else 0):
        with pytest.raises(TypeError, match="was not awaited: write `await` before the call"):
            judge(answer)
    with pytest.raises(AttributeError, match=r"no 'allowed': .* was not awaited: write `await` before the call"):
        _ = answer.allowed  # type: ignore[attr-defined]
    assert not hasattr(answer, "retry_after")
    del answer
    gc.collect()


@pytest.mark.parametrize("call", ["acquire", "refund", "close", "acquire_all", "reserve"])
async def test_an_order_that_nobody_awaited_is_warned_of(call: str) -> None:
    limiter = limiter_on(Stage())
    arguments = {"close": (), "acquire_all": ({KEY: 1},), "reserve": (KEY, 1)}.get(call, (KEY,))
    with pytest.warns(RuntimeWarning, match=rf"coroutine 'Async\w+\._?{call}' was never awaited"):
        getattr(limiter, call)(*arguments)
    assert limiter.statistics().admitted == 0


async def _answers(limiter: AsyncRateLimiter) -> list[bool]:
    """The same question in all the ways that asyncio knows: of a cold key, of one with tokens, of a dry one."""
    return [
        await limiter.try_acquire(KEY),
        await asyncio.create_task(limiter.try_acquire(KEY)),
        await asyncio.ensure_future(limiter.try_acquire(KEY)),
        await asyncio.wait_for(limiter.try_acquire(KEY), 1.0),
        await asyncio.shield(limiter.try_acquire(KEY)),
        *await asyncio.gather(limiter.try_acquire(KEY), limiter.try_acquire(KEY)),
        *[task.result() for task in (await asyncio.wait([asyncio.create_task(limiter.try_acquire(KEY))]))[0]],
        *[task.result() for task in (await asyncio.wait([asyncio.ensure_future(limiter.try_acquire(KEY))]))[0]],
    ]


async def test_it_may_be_awaited_in_every_way_there_is() -> None:
    limiter = limiter_on(Stage())
    assert await _answers(limiter) == [True] * 9
    await limiter.acquire(KEY, 2)
    assert await _answers(limiter) == [False] * 9
    async with asyncio.TaskGroup() as group:
        task = group.create_task(limiter.try_acquire(KEY))
    assert task.result() is False


async def test_it_is_a_coroutine_to_whoever_asks() -> None:
    limiter = limiter_on(Stage(), sizer=FixedBatch(10))
    for _ in range(2):
        answer = limiter.try_acquire(KEY)
        assert asyncio.iscoroutine(answer)
        assert await answer
    with pytest.raises(StopIteration) as caught:
        limiter.try_acquire(KEY).send(None)
    assert caught.value.value is True


async def test_a_task_of_it_can_be_shown() -> None:
    """As asyncio does in its debug mode, and `asyncio.run` of Python 3.12.1; from 3.12 on that asks for its truth."""
    limiter = limiter_on(Stage(), sizer=FixedBatch(10))
    for _ in range(2):
        task = asyncio.create_task(limiter.try_acquire(KEY))
        assert "pending" in repr(task)
        assert await task
        assert "finished" in repr(task)


async def test_it_may_be_thrown_into_and_closed() -> None:
    limiter = limiter_on(Stage(), sizer=FixedBatch(10))
    for _ in range(2):
        with pytest.raises(LookupError):
            limiter.try_acquire(KEY).throw(LookupError("x"))
        limiter.try_acquire(KEY).close()
        await limiter.acquire(KEY)


async def test_a_hit_does_not_yield_to_the_loop() -> None:
    """Other tasks do not run between the calls of one that hits, nor between its refusals by memory."""
    limiter = limiter_on(Stage(), Quota(SLOW, 20), sizer=FixedBatch(20))
    await limiter.acquire(KEY)
    assert not await limiter.try_acquire("dry", 20) or not await limiter.try_acquire("dry")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    await asyncio.sleep(0)
    before = turns
    for _ in range(3):
        assert await limiter.try_acquire(KEY)
        await limiter.acquire(KEY)
        assert await limiter.decide(KEY)
        assert not await limiter.try_acquire("dry")
        assert not await limiter.decide("dry")
    assert turns == before
    counter.cancel()
