"""A time budget that a loop which was held up does not shorten."""

import asyncio

import pytest

from batchlimit.aio.guarded_store import CallTimeout
from tests.aio.loop import virtual_loop


async def test_what_is_in_time_returns() -> None:
    async with CallTimeout(0.05):
        await asyncio.sleep(0.04)
    await asyncio.sleep(1.0)


async def test_what_is_not_is_cancelled() -> None:
    with pytest.raises(TimeoutError):
        async with CallTimeout(0.05):
            await asyncio.sleep(10.0)
    assert virtual_loop().time() < 1000.06


async def test_an_error_within_is_that_error() -> None:
    with pytest.raises(LookupError):
        async with CallTimeout(0.05):
            raise LookupError
    with pytest.raises(TimeoutError):
        async with CallTimeout(0.05):
            raise TimeoutError


async def test_who_is_cancelled_from_outside_is_cancelled() -> None:
    async def wait() -> None:
        async with CallTimeout(5.0):
            await asyncio.sleep(10.0)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("rounds", [1, 2, 3])
async def test_what_came_while_the_loop_was_held_up_is_in_time(rounds: int) -> None:
    """An answer is read in one round of the loop, understood in the next, and its task has it in the third."""
    answer = asyncio.get_running_loop().create_future()

    def arrive(left: int) -> None:
        if left == 1:
            answer.set_result(5)
        else:
            asyncio.get_running_loop().call_soon(arrive, left - 1)

    async with CallTimeout(0.05):
        virtual_loop().leap(3.0)  # somebody computes for three seconds; meanwhile it arrives
        asyncio.get_running_loop().call_soon(arrive, rounds)
        assert await answer == 5
