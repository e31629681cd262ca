"""What a crowd in line costs: processor time for each waiter, and the longest stop of an event loop.

    .venv/bin/python benchmarks/waiters.py [--API tasks|threads] [--waiters 10000] [--keys 1] [--timeout 30]

The waiters come a hundred at a time and call `acquire` on memory://, at 1000/s burst 100 a key; `--timeout 0` means
that they wait for ever. The floor is as many tasks that sleep, or threads that wait for an event, in that run.
"""

import argparse
import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from batchlimit import AsyncRateLimiter, RateLimiter

QUOTA = "1000/s burst 100"
AT_ONCE = 100
BEAT = 0.001
"""Seconds between two looks at how late the loop is."""


async def crowd(count: int, wait: Callable[[int], Awaitable[object]]) -> tuple[float, float]:
    """Have so many tasks wait; return the processor time of each (us), and the longest stop of the loop (ms)."""
    stops = [0.0]
    watch = asyncio.create_task(_watch(stops))
    begun, tasks = time.process_time(), []
    for i in range(count):
        tasks.append(asyncio.ensure_future(wait(i)))
        if i % AT_ONCE == 0:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    spent = time.process_time() - begun
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    return spent / count * 1e6, max(stops) * 1e3


async def _watch(stops: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(BEAT)
        stops.append(time.perf_counter() - before - BEAT)


async def tasks(count: int, keys: int, timeout: float | None) -> None:
    """Print what tasks cost."""
    floor, _ = await crowd(count, lambda _: asyncio.sleep(0.5))
    async with AsyncRateLimiter.from_url("memory://", QUOTA) as limiter:
        each, stop = await crowd(count, lambda i: limiter.acquire(f"key:{i % keys}", timeout=timeout))
    print(f"tasks    {each:6.0f} us each, {each / floor:5.1f} x a task that sleeps, longest stop {stop:.0f} ms")


def threads(count: int, keys: int, timeout: float | None) -> None:
    """Print what threads cost."""
    event = threading.Event()
    threading.Timer(1.0, event.set).start()
    floor = _threaded(count, lambda _: event.wait(60))
    with RateLimiter.from_url("memory://", QUOTA) as limiter:
        each = _threaded(count, lambda i: limiter.acquire(f"key:{i % keys}", timeout=timeout))
    print(f"threads  {each:6.0f} us each, {each / floor:5.1f} x a thread that waits for an event")


def _threaded(count: int, wait: Callable[[int], object]) -> float:
    begun = time.process_time()
    crew = [threading.Thread(target=wait, args=(i,)) for i in range(count)]
    for each in crew:
        each.start()
    for each in crew:
        each.join()
    return (time.process_time() - begun) / count * 1e6


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--front", choices=["tasks", "threads"])
    parser.add_argument("--waiters", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=30.0)
    told = parser.parse_args()
    timeout = told.timeout or None
    if told.front != "threads":
        asyncio.run(tasks(told.waiters, told.keys, timeout))
    if told.front != "tasks":
        threads(min(told.waiters, 2000), told.keys, timeout)


if __name__ == "__main__":
    main()
