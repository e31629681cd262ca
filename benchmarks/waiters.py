"""What a crowd in line costs: processor time for each waiter, and the longest stop of an event loop.

    .venv/bin/python benchmarks/waiters.py [--front tasks|threads] [--waiters 10000] [--keys 1]
        [--timeout 30] [--without-gc]

The waiters come a hundred at a time and call `acquire` on memory://, at 1000/s burst 100 a key; `--timeout 0` means
that they wait for ever. The floor is as many tasks that sleep, or threads that wait for an event, in that run.
A waiter that is refused is counted. The longest stop of the loop is processor time of its thread between two turns of a
task that sleeps for 1 ms, so the other programs of a shared machine do not add to it.
Python's garbage collector stops the loop as well, for 55 ms to look through 10,000 tasks: `--without-gc` leaves it out.
"""

import argparse
import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from batchlimit import AsyncRateLimiter, RateLimited, RateLimiter

QUOTA = "1000/s burst 100"
AT_ONCE = 100
BEAT = 0.001
"""Seconds between two looks at what the loop has done."""


async def crowd(count: int, wait: Callable[[int], Awaitable[object]]) -> tuple[float, float, int]:
    """Have so many tasks wait; return the processor time of each (us), the longest stop of the loop (ms), refusals."""
    stops = [0.0]
    watch = asyncio.create_task(_watch(stops))
    begun, tasks = time.process_time(), []
    for i in range(count):
        tasks.append(asyncio.ensure_future(wait(i)))
        if i % AT_ONCE == 0:
            await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    spent = time.process_time() - begun
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    return spent / count * 1e6, max(stops) * 1e3, sum(_is_refusal(each) for each in results)


def _is_refusal(result: object) -> bool:
    """Return whether this is a refusal; raises any other error."""
    if isinstance(result, BaseException) and not isinstance(result, RateLimited):
        raise result
    return isinstance(result, RateLimited)


async def _watch(stops: list[float]) -> None:
    while True:
        before = time.thread_time()
        await asyncio.sleep(BEAT)
        stops.append(time.thread_time() - before)


async def tasks(count: int, keys: int, timeout: float | None) -> None:
    """Print what tasks cost."""
    floor, *_ = await crowd(count, lambda _: asyncio.sleep(0.5))
    async with AsyncRateLimiter.from_url("memory://", QUOTA) as limiter:
        each, stop, refused = await crowd(count, lambda i: limiter.acquire(f"key:{i % keys}", timeout=timeout))
    ratio = f"{each / floor:5.1f} x a task that sleeps"
    print(f"tasks    {each:6.0f} us each, {ratio}, longest stop {stop:.0f} ms, {refused} refused")


def threads(count: int, keys: int, timeout: float | None) -> None:
    """Print what threads cost."""
    event = threading.Event()
    threading.Timer(1.0, event.set).start()
    floor = _threaded(count, lambda _: event.wait(60))
    refused: list[RateLimited] = []
    with RateLimiter.from_url("memory://", QUOTA) as limiter:

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
    parser.add_argument("--front", choices=["tasks", "threads"])
    parser.add_argument("--waiters", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("--without-gc", action="store_true")
    told = parser.parse_args()
    if told.without_gc:
        gc.disable()
    timeout = told.timeout or None
    if told.front != "threads":
        asyncio.run(tasks(told.waiters, told.keys, timeout))
    if told.front != "tasks":
        threads(min(told.waiters, 2000), told.keys, timeout)


if __name__ == "__main__":
    main()
