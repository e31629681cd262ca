"""What a crowd in line costs: processor time for each waiter, and the longest stop of an event loop.

    .venv/bin/python -m benchmarks.waiters [--api tasks|threads] [--waiters 10000] [--keys 1]
        [--quota "1000/s burst 100"] [--timeout 30] [--without-gc]

The burst of each key is spent first. Then the waiters come a hundred at a time and call `acquire` on memory://;
`--timeout 0` means that they wait for ever. The floor is as many tasks that sleep, or threads that wait for an event,
in that run. A waiter that is refused is counted.

Tasks are measured twice. The first crowd tells the processor time. The second one tells the longest stop: processor
time of the loop's thread between two turns of a task that sleeps for 1 ms, so the other programs of a shared machine do
not add to it. (Where 10,000 wait for 10 s that task alone takes 50 us for each of them.)
Python's garbage collector stops the loop as well, for 40 ms and more to look through 10,000 tasks: `--without-gc`
leaves it out.
"""

import argparse
import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from batchlimit import AsyncRateLimiter, Quota, RateLimited, RateLimiter

AT_ONCE = 100
BEAT = 0.001
"""Seconds between two looks at what the loop has done."""


async def crowd(count: int, wait: Callable[[int], Awaitable[object]]) -> tuple[float, int]:
    """Have so many tasks wait; return the processor time of each (us), and the number of refusals."""
    begun, tasks = time.process_time(), []
    for i in range(count):
        tasks.append(asyncio.ensure_future(wait(i)))
        if i % AT_ONCE == 0:
            await asyncio.sleep(0)
    refused = 0
    for task in tasks:
        try:
            await task
        except RateLimited:
            refused += 1
    return (time.process_time() - begun) / count * 1e6, refused


async def longest_stop(crowd: Awaitable[object]) -> float:
    """Return the longest stop of the loop (ms) while a crowd waits."""
    stops = [0.0]
    watch = asyncio.create_task(_watch(stops))
    await crowd
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    return max(stops) * 1e3


async def _watch(stops: list[float]) -> None:
    while True:
        before = time.thread_time()
        await asyncio.sleep(BEAT)
        stops.append(time.thread_time() - before)


async def tasks(count: int, keys: int, quota: str, timeout: float | None) -> None:
    """Print what tasks cost."""

    async def acquired() -> tuple[float, int]:
        async with AsyncRateLimiter.from_url("memory://", quota) as limiter:
            for i in range(keys):
                await limiter.acquire(f"key:{i}", Quota.parse(quota).largest_cost)
            return await crowd(count, lambda i: limiter.acquire(f"key:{i % keys}", timeout=timeout))

    def slept() -> Awaitable[tuple[float, int]]:
        return crowd(count, lambda _: asyncio.sleep(0.5))

    floor, _ = await slept()
    each, refused = await acquired()
    print(f"tasks    {each:6.0f} us each, {each / floor:5.1f} x a task that sleeps, {refused} refused", flush=True)
    stop, least = await longest_stop(acquired()), await longest_stop(slept())
    print(f"         longest stop {stop:.0f} ms; of as many tasks that sleep {least:.0f} ms")


def threads(count: int, keys: int, quota: str, timeout: float | None) -> None:
    """Print what threads cost."""
    event = threading.Event()
    threading.Timer(1.0, event.set).start()
    floor = _threaded(count, lambda _: event.wait(60))
    refused: list[RateLimited] = []
    with RateLimiter.from_url("memory://", quota) as limiter:
        for i in range(keys):
            limiter.acquire(f"key:{i}", Quota.parse(quota).largest_cost)

        def acquire(i: int) -> None:
            try:
                limiter.acquire(f"key:{i % keys}", timeout=timeout)
            except RateLimited as error:
                refused.append(error)

        each = _threaded(count, acquire)
    print(f"threads  {each:6.0f} us each, {each / floor:5.1f} x a thread that waits, {len(refused)} refused")


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
    parser.add_argument("--api", choices=["tasks", "threads"])
    parser.add_argument("--waiters", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=1)
    parser.add_argument("--quota", default="1000/s burst 100")
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("--without-gc", action="store_true")
    told = parser.parse_args()
    if told.without_gc:
        gc.disable()
    timeout = told.timeout or None
    if told.api != "threads":
        asyncio.run(tasks(told.waiters, told.keys, told.quota, timeout))
    if told.api != "tasks":
        threads(min(told.waiters, 2000), told.keys, told.quota, timeout)


if __name__ == "__main__":
    main()
