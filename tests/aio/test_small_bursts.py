"""Several tasks that wait at a small burst get all of the rate, in one process or in four: none of it is lost to them.

In virtual time, where a round trip takes 0.1 ms and nothing else takes any.
"""

import asyncio
import random

import pytest

from batchlimit import AsyncRateLimiter, Quota
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from tests.aio.loop import run, virtual_loop
from tests.aio.stage import KEY, Stage
from tests.depth import depth
from tests.reservoir.world import SECOND, excess

TRIPS = {1: 0.002, 4: 0.0001}
"""Seconds, by the number of processes: one that has the whole burst loses none, several hand each token over."""
TASKS = 4
TOKENS = 200


class Process:
    """One limiter, and tasks that acquire again and again."""

    def __init__(
        self,
        store: MemoryStore,
        quota: Quota,
        trip: float,
        deadline: float = 0.05,
        *,
        costs: dict[str, int] | None = None,
    ) -> None:
        self.trip, self.costs = trip, costs
        stage = Stage(AsyncMemoryStore(store))
        stage.before = stage.after = self._travel
        self.limiter = AsyncRateLimiter(stage, quota, clock=virtual_loop().time, deadline=deadline)
        self.admitted: list[float] = []
        self.tasks = [asyncio.create_task(self._acquire()) for _ in range(TASKS)]

    async def _travel(self) -> None:
        await asyncio.sleep(self.trip / 2)

    async def _acquire(self) -> None:
        while True:
            await (self.limiter.acquire_all(self.costs) if self.costs else self.limiter.acquire(KEY))
            self.admitted.append(virtual_loop().time())

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.limiter.close()


async def play(quota: Quota, processes: int, *, costs: dict[str, int] | None = None) -> tuple[float, float, float]:
    """Return the share of the rate that was used, the excess, and the poorest process's part of the richest's."""
    random.seed(1)  # the jitter of pauses
    store = MemoryStore(virtual_loop().time)
    crew = [Process(store, quota, TRIPS[processes], costs=costs) for _ in range(processes)]
    await asyncio.sleep(TOKENS / quota.rate)
    for each in crew:
        await each.end()
    admitted = sorted(at for each in crew for at in each.admitted)
    over = excess([(round(at * SECOND), 1) for at in admitted], quota.rate, quota.burst)
    counts = [len(each.admitted) for each in crew]
    return (len(admitted) - quota.burst) / TOKENS, over, min(counts) / max(counts)


@pytest.mark.parametrize("burst", depth([1, 20], [1, 2, 3, 5, 20]))
@pytest.mark.parametrize("rate", depth([0.5, 100.0], [0.5, 4.0, 10.0, 100.0]))
@pytest.mark.parametrize("processes", [1, 4])
def test_tasks_that_wait_get_all_of_a_rate_however_small_its_burst(processes: int, rate: float, burst: int) -> None:
    used, over, evenness = run(lambda: play(Quota(rate, burst), processes))
    assert used >= 0.97
    assert over < 0.001
    assert evenness >= 0.8


@pytest.mark.parametrize(("rate", "costs"), [(0.5, {KEY: 1}), (100.0, {KEY: 1}), (0.5, {KEY: 1, "other": 1})])
def test_acquire_all_gets_all_of_a_rate_as_acquire_does(rate: float, costs: dict[str, int]) -> None:
    """Who holds the token of one key for another's spends it after the next request has told that it is held.

    At 100/s the round trip to the other key takes a part of what the token is refilled in.
    """
    used, _, _ = run(lambda: play(Quota(rate, 1), 1, costs=costs))
    assert used >= 0.97


async def _rate_after(far: float, quota: Quota, processes: int) -> float:
    """Return the share of the rate that is used from 2 s on after a store that was so far away (s) came near."""
    random.seed(1)
    store = MemoryStore(virtual_loop().time)
    crew = [Process(store, quota, far, deadline=2.0) for _ in range(processes)]
    await asyncio.sleep(2.0)
    for each in crew:
        each.trip = TRIPS[processes]
    await asyncio.sleep(2.0)
    before = sum(len(each.admitted) for each in crew)
    seconds = max(2.0, 10 * quota.burst / quota.rate)  # long beside a lease, which is a part of the burst
    await asyncio.sleep(seconds)
    after = sum(len(each.admitted) for each in crew)
    for each in crew:
        await each.end()
    return (after - before) / (seconds * quota.rate)


@pytest.mark.parametrize(
    ("processes", "burst"), depth([(1, 1), (1, 10), (4, 1)], [(1, 1), (1, 10), (1, 100), (4, 1), (4, 10)])
)
@pytest.mark.parametrize("far", [0.03, 0.3])
def test_tasks_get_all_of_the_rate_two_seconds_after_a_far_store_came_near(
    far: float, processes: int, burst: int
) -> None:
    assert run(lambda: _rate_after(far, Quota(100.0, burst), processes)) > 0.97
