"""A thousand tasks that wait through a pause start at the rate when it ends, in order, and not as a herd."""

import asyncio
import random

import pytest

from batchlimit import AsyncRateLimiter
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from tests.aio.loop import virtual_loop
from tests.aio.stage import KEY

PROCESSES, TASKS = 4, 250
PAUSE, RATE, BURST = 5.0, 100, 20


@pytest.mark.parametrize("seed", range(3))
async def test_a_thousand_that_waited_start_at_the_rate(seed: int) -> None:
    random.seed(seed)
    store = MemoryStore(virtual_loop().time)
    crew = [
        AsyncRateLimiter(AsyncMemoryStore(store), f"{RATE}/s burst {BURST}", clock=virtual_loop().time)
        for _ in range(PROCESSES)
    ]
    began = virtual_loop().time()
    admitted: list[tuple[float, int, int]] = []

    async def call(process: int, number: int) -> None:
        await crew[process].acquire(KEY, timeout=60)
        admitted.append((virtual_loop().time() - began, process, number))

    await crew[0].pause(KEY, PAUSE)
    tasks = []
    for number in range(TASKS):
        tasks += [asyncio.create_task(call(process, number)) for process in range(PROCESSES)]
        await asyncio.sleep(0.001)  # so long a spend is under way: who comes meanwhile is not later
    await asyncio.gather(*tasks)
    times = [at for at, _, _ in admitted]
    assert min(times) >= PAUSE
    for until in (0.1, 0.5, 1.0, 5.0):
        assert sum(at < PAUSE + until for at in times) <= RATE * until + 1, "from no tokens at the end of the pause on"
    assert sum(at < PAUSE + 1 for at in times) >= 0.95 * RATE
    assert max(times) <= PAUSE + PROCESSES * TASKS / RATE / 0.95
    for process in range(PROCESSES):
        assert [number for _, each, number in admitted if each == process] == list(range(TASKS))
    for limiter in crew:
        await limiter.close()
