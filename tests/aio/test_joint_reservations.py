"""A task that reserves several keys may be cancelled at any moment: what it was charged is settled or goes back."""

import asyncio

import pytest

from batchlimit import AsyncRateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore
from batchlimit.stores.memory import AsyncMemoryStore
from tests.aio.loop import virtual_loop
from tests.aio.stage import Stage, in_line

QUOTAS = {"rpm": "10/day burst 10", "tpm": "1000/day burst 1000"}
COSTS = {"rpm": 1, "tpm": 400}


async def _some_turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture(params=[False, True], ids=["cold", "leased"])
def leased(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def _limiter(leased: bool) -> AsyncRateLimiter:
    """Whose store takes a few turns of the loop each way."""
    stage = Stage(AsyncMemoryStore(MemoryStore(virtual_loop().time)))
    stage.before = stage.after = stage.before_back = _some_turns
    limiter = AsyncRateLimiter(stage, QUOTAS, clock=virtual_loop().time, sizer=FixedBatch(500 if leased else 1))
    if leased:
        await limiter.acquire_all(COSTS)
        for key, cost in COSTS.items():
            await limiter.refund(key, cost)
    return limiter


async def _left(limiter: AsyncRateLimiter) -> dict[str, int]:
    """What there is once all requests have arrived."""
    for _ in range(9):
        await _some_turns()
    return {key: (await limiter.peek(key)).remaining for key in QUOTAS}


@pytest.mark.parametrize("turns", range(0, 40, 2))
async def test_one_that_is_cancelled_leaves_nothing_charged(leased: bool, turns: int) -> None:
    limiter = await _limiter(leased)
    never = asyncio.Event()

    async def call() -> None:
        async with limiter.reserve(COSTS, on_error="refund"):
            await never.wait()

    task = asyncio.create_task(call())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert await _left(limiter) == {"rpm": 10, "tpm": 1000}
    assert limiter.statistics().waiting == 0
    await limiter.close()


@pytest.mark.parametrize("turns", range(12))
async def test_one_that_is_cancelled_while_it_settles_has_settled_all(turns: int) -> None:
    limiter = await _limiter(False)
    reservation = await limiter.reserve({"rpm": 3, "tpm": 400})
    virtual_loop().leap(10.0)  # the leases are over: what goes back has to travel
    task = asyncio.create_task(reservation.settle({"rpm": 1, "tpm": 100}))
    for _ in range(1 + turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert await _left(limiter) == {"rpm": 9, "tpm": 900}
    await limiter.close()


async def test_one_that_is_cancelled_in_the_queue_lets_the_next_one_through() -> None:
    limiter = await _limiter(False)
    await limiter.acquire("tpm", 700)
    waiting = asyncio.create_task(_reserve(limiter, {"rpm": 1, "tpm": 400}))
    behind = asyncio.create_task(_reserve(limiter, {"rpm": 1, "tpm": 300}))
    await in_line(limiter, 2)
    waiting.cancel()
    await behind
    assert await _left(limiter) == {"rpm": 9, "tpm": 0}
    await limiter.close()


async def test_one_that_nobody_awaited_cannot_be_settled() -> None:
    limiter = await _limiter(False)
    reservation = limiter.reserve(COSTS)
    with pytest.raises(RuntimeError, match="was not charged"):
        await reservation.settle({"tpm": 1})
    await reservation
    await reservation.settle({"tpm": 1})
    assert await _left(limiter) == {"rpm": 9, "tpm": 999}
    await limiter.close()


async def _reserve(limiter: AsyncRateLimiter, costs: dict[str, int]) -> None:
    await limiter.reserve(costs)
