"""A key leaves the memory when it is idle, and never under the feet of a task that has tokens of it."""

import asyncio

import pytest

from tests.aio.loop import virtual_loop
from tests.aio.stage import Stage, limiter_on


@pytest.mark.parametrize("idle_after", [0.0, 0.2, 10.0])
async def test_who_waits_for_one_key_longer_than_its_tokens_of_another_last_gets_both(idle_after: float) -> None:
    """With idle_after=0 the other one had left meanwhile, and an exception of ours came out of acquire_all."""
    stage = Stage()
    limiter = limiter_on(stage, "10/s burst 10", idle_after=idle_after, deadline=10.0)

    async def slow_at_first() -> None:
        if len(stage.asks) == 1:
            await asyncio.sleep(5.0)

    stage.before = slow_at_first
    await limiter.acquire_all({"a": 1, "b": 1})
    assert limiter.statistics().admitted == 2
    await limiter.close()


async def test_a_key_that_leaves_at_once_is_as_good_as_any_other() -> None:
    limiter = limiter_on(Stage(), "10/s burst 10", idle_after=0.0)
    loop = virtual_loop()
    for _ in range(100):
        assert await limiter.try_acquire("a")
        loop.leap(0.3)
        await asyncio.sleep(0.7)
    assert limiter.statistics().admitted == 100
    await asyncio.sleep(2.0)
    assert limiter.statistics().keys == 0
    await limiter.close()
