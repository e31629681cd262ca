"""Callers whose decisions miss: threads and tasks that call as fast as they can, and two scripts that redis-py runs."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from typing import Any

from batchlimit import Quota
from batchlimit.bucket.messages import Ask
from batchlimit.stores.client.scripts import take_arguments
from benchmarks.heartbeat import Laps

QUOTA = Quota(1e7, 10_000_000)
CALLS = 800
"""How many calls all threads or tasks of a crew make together in one timing."""
COLD = 100

Call = Callable[[str], object]
AsyncCall = Callable[[str], Awaitable[object]]

_seqs = count(1)


def crews(many: int) -> Iterator[tuple[str, Sequence[str]]]:
    """A name for each crew, and the key of each thread or task."""
    yield "1", ["key"]
    yield f"{many}, each at its own key", [f"key-{n}" for n in range(many)]
    yield f"{many} at one key", ["one"] * many


def ask() -> Ask:
    """One token, asked for as a limiter does, by a number of its own."""
    return Ask("bench", next(_seqs), need=1, queued=1, want=1)


def plain(evalsha: Callable[..., Any], key: str) -> Any:
    """Take a token from a plain bucket."""
    return evalsha(f"plain:{key}", QUOTA.rate, QUOTA.burst, "whole", 1)


def scripted(evalsha: Callable[..., Any], key: str) -> Any:
    """Take a token by our script, without our limiter."""
    return evalsha(f"{{ours:{key}}}", *take_arguments(QUOTA, ask()))


def run_threads(call: Call, keys: Sequence[str]) -> float:
    """Return the calls a second of so many threads."""
    barrier = threading.Barrier(len(keys) + 1)
    crew = [threading.Thread(target=_work, args=(call, key, CALLS // len(keys), barrier)) for key in keys]
    for each in crew:
        each.start()
    barrier.wait()
    begun = time.perf_counter()
    for each in crew:
        each.join()
    return CALLS / (time.perf_counter() - begun)


def _work(call: Call, key: str, calls: int, barrier: threading.Barrier) -> None:
    call(key)  # whoever comes first connects
    barrier.wait()
    for _ in range(calls):
        call(key)


async def run_tasks(call: AsyncCall, keys: Sequence[str]) -> float:
    """Return the calls a second of so many tasks."""
    await asyncio.gather(*(call(key) for key in keys))  # whoever comes first connects
    begun = time.perf_counter()
    await asyncio.gather(*(_repeat(call, key, CALLS // len(keys)) for key in keys))
    return CALLS / (time.perf_counter() - begun)


async def run_cold(call: AsyncCall, laps: Laps, longest: list[float]) -> float:
    """Return the calls a second of tasks that miss as many keys in one turn; note the loop's longest lap (s)."""
    keys = [f"cold-{time.monotonic_ns()}-{n}" for n in range(COLD)]
    await asyncio.sleep(0)
    laps.take()
    begun = time.perf_counter()
    await asyncio.gather(*(asyncio.create_task(_repeat(call, key, 1)) for key in keys))
    taken = time.perf_counter() - begun
    longest.append(max(laps.take()))
    return COLD / taken


async def _repeat(call: AsyncCall, key: str, calls: int) -> None:
    for _ in range(calls):
        await call(key)
