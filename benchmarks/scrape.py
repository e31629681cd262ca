"""What it costs to look at a limiter with many keys in use: processor time of a scrape, and how long a loop stops.

    python -m benchmarks.scrape [--keys 100000] [--rounds 5]

All keys are in use, which is the worst case: in life most keys in memory are dormant, and cost a scrape nothing. They
hold tokens; at last they hold none, so each is asked who waits. The clock of the limiter stands still: no key
retires. Times are of the thread that scrapes. A heartbeat on the limiter's own event loop notes how late it wakes,
while a thread scrapes and while none does. `statistics()` on that loop stops it until the end; `await
asyncio.to_thread(limiter.statistics)` does not.
"""

import argparse
import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.stores import MemoryStore
from batchlimit.telemetry.prometheus import export
from benchmarks.figures import Figure, ran_on

_BEAT = 0.001
_QUOTAS = {"user:*": "1000/s burst 1000", "*": "10/s"}


async def filled(keys: int) -> AsyncRateLimiter:
    """Return a limiter each of whose keys holds tokens."""
    limiter = AsyncRateLimiter(MemoryStore(), _QUOTAS, max_keys=2 * keys, clock=lambda: 1.0)
    for number in range(keys):
        _fill(limiter._registry.entry(f"user:{number}"))
        if number % 100 == 0:
            await asyncio.sleep(0)
    return limiter


def filled_for_threads(keys: int) -> RateLimiter:
    """Return the same for threads."""
    limiter = RateLimiter(MemoryStore(), _QUOTAS, max_keys=2 * keys, clock=lambda: 1.0)
    for number in range(keys):
        _fill(limiter._registry.entry(f"user:{number}"))
    return limiter


def _fill(entry: Any) -> None:
    entry.reservoir.state.view.level = 900
    entry.tokens.add(21)
    entry.tokens.take(1)


def quickest(work: Callable[[], object], rounds: int) -> float:
    """Return the processor time (ms) of this thread for the quickest of some rounds."""
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return 1e3 * min(times)


async def latest(work: Callable[[], object] | None, rounds: int) -> list[float]:
    """Return how late (ms) a heartbeat woke in each round, at the latest, beside a thread that works."""
    late = []
    for _ in range(rounds):
        thread = threading.Thread(target=work or (lambda: time.sleep(0.2)))
        thread.start()
        worst = 0.0
        while thread.is_alive():
            began = time.perf_counter()
            await asyncio.sleep(_BEAT)
            worst = max(worst, time.perf_counter() - began - _BEAT)
        late.append(1e3 * worst)
    return sorted(late)


async def measured(keys: int, rounds: int) -> list[Figure]:
    """Return the figures of a limiter on an event loop."""
    limiter, registry = await filled(keys), CollectorRegistry()
    exporter = export(limiter, name="api", registry=registry)
    gc.collect()
    gc.freeze()

    def scrape() -> bytes:
        return generate_latest(registry)

    alone, beside = await latest(None, rounds), await latest(scrape, rounds)
    costs = await asyncio.to_thread(quickest, scrape, rounds)
    own = quickest(limiter.statistics, rounds)
    exporter.close()
    return [
        Figure("a scrape, processor time", round(costs, 1), "ms", at_most=50, note=f"{keys:,} keys in use"),
        Figure("a loop stops beside it, median of the longest", round(beside[rounds // 2], 2), "ms", at_most=5),
        Figure("the same without a scrape", round(alone[rounds // 2], 2), "ms"),
        Figure("statistics() on the loop itself stops it", round(own, 1), "ms"),
    ]


def measured_for_threads(keys: int, rounds: int) -> list[Figure]:
    """Return the figures of a limiter for threads."""
    limiter = filled_for_threads(keys)
    gc.freeze()
    holding = quickest(limiter.statistics, rounds)
    for entry in limiter._registry.entries.values():
        entry.tokens.take(20)
    empty = quickest(limiter.statistics, rounds)
    return [
        Figure("statistics() of a RateLimiter, processor time", round(holding, 1), "ms", at_most=50),
        Figure("the same where no key has tokens", round(empty, 1), "ms", at_most=50),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    print(ran_on())
    print(*asyncio.run(measured(chosen.keys, chosen.rounds)), sep="\n")
    print(*measured_for_threads(chosen.keys, chosen.rounds), sep="\n")


if __name__ == "__main__":
    main()
