"""What stays in memory of a million keys that were used once; what a live one costs is in keys.py."""

import gc
import multiprocessing
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from os import getpid
from typing import TypeVar

from batchlimit import RateLimiter
from benchmarks.figures import Figure
from tests.programs import program

_IDLE_AFTER = 2.0
_PATIENCE = 60.0
_FORGOTTEN = 10.0  # seconds after which memory:// has no use for a bucket of this quota
_MEBI = 2**20

A = TypeVar("A")
R = TypeVar("R")


def passing_keys(keys: int) -> Iterator[Figure]:
    """The process before, at its largest, and after a flood of keys that nobody comes back to."""
    before, peak, after, left, objects, seconds = apart(_flood, keys)
    note = f"{keys:,} keys on memory://, each used once, idle_after={_IDLE_AFTER:g}, {seconds:.1f} s"
    yield Figure("memory: process before", before / _MEBI, "MiB", note=note)
    yield Figure("memory: process at its peak", peak / _MEBI, "MiB")
    yield Figure("memory: process when all were idle", after / _MEBI, "MiB")
    note = "of those that the flood had added; what the process keeps above is the allocator's"
    yield Figure("memory: objects left when all were idle", 100 * objects, "%", at_most=5, note=note)
    yield Figure("memory: idle keys that the limiter kept", left, "keys", at_most=0)


def apart(measure: Callable[[A], R], argument: A) -> R:
    """Return the result of the function in a new process, where nothing else has touched the memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (argument,))


def _flood(keys: int) -> tuple[int, int, int, int, float, float]:
    with RateLimiter.from_url("memory://", "1000/s burst 100", idle_after=_IDLE_AFTER) as limiter:
        limiter.try_acquire("first")
        before, blocks, begun = resident(), sys.getallocatedblocks(), time.monotonic()
        for number in range(keys):
            limiter.try_acquire(f"tenant:{number}")
        took, peak, added = time.monotonic() - begun, _largest(), sys.getallocatedblocks() - blocks
        _until(lambda: limiter.statistics().keys == 0)
        kept = limiter.statistics().keys
        time.sleep(_FORGOTTEN)
        limiter.try_acquire("first")
        gc.collect()
        return before, peak, resident(), kept, (sys.getallocatedblocks() - blocks) / added, took


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not true() and time.monotonic() < deadline:
        time.sleep(0.1)


def resident() -> int:
    """Bytes of this process that are in memory now; by ps, which Linux and macOS both have."""
    shown = subprocess.run(
        [program("ps"), "-o", "rss=", "-p", str(getpid())], capture_output=True, text=True, check=True
    )
    return int(shown.stdout) * 1024


def _largest() -> int:
    # Linux counts it in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
