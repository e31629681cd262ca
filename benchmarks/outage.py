"""What a call costs while the store is away, beside what it costs while it is there, in one run.

A quota of a million a second, one thread or task, one key; the store is in memory, and goes away by raising.
"""

import argparse
import asyncio
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from batchlimit import AsyncRateLimiter, FailurePolicy, Quota, RateLimiter, StoreUnavailable
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.stores import MemoryStore
from batchlimit.stores.memory import AsyncMemoryStore
from benchmarks.figures import Figure, report

_CALLS = 20_000
_QUOTA = Quota(1e6, 1_000_000)
_POLICIES: dict[str, Any] = {"closed": "closed", "open": "open", "local": FailurePolicy.local(instances=1)}


class Away(MemoryStore):
    """Buckets in memory, until somebody takes them away."""

    away = False

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        if self.away:
            raise StoreUnavailable("away")
        return super().take(key, quota, ask)

    def probe(self, key: str) -> None:
        if self.away:
            raise StoreUnavailable("away")


def threads(rounds: int) -> Iterator[Figure]:
    """`try_acquire` in one thread: at a store that is there, and at one that was given up, by policy."""
    timings = [[_timed(_limiter(policy)) for policy in (None, *_POLICIES.values())] for _ in range(rounds)]
    yield from _figures("threads", timings)


def tasks(rounds: int) -> Iterator[Figure]:
    """The same, awaited."""
    yield from _figures("asyncio", asyncio.run(_tasks(rounds)))


async def _tasks(rounds: int) -> list[list[float]]:
    return [[await _awaited(policy) for policy in (None, *_POLICIES.values())] for _ in range(rounds)]


def _figures(api: str, timings: list[list[float]]) -> Iterator[Figure]:
    normal = statistics.median(each[0] for each in timings)
    note = f"median of {len(timings)} rounds of {_CALLS:,} calls each, in turn"
    yield Figure(f"{api}: the store is there", normal, "ns", note=note)
    for i, policy in enumerate(_POLICIES, 1):
        yield Figure(f"{api}: given up, {policy}", statistics.median(each[i] for each in timings), "ns")
        ratio = statistics.median(each[i] / each[0] for each in timings)
        yield Figure(f"{api}: {policy}, ratio", ratio, at_most=2.0, note="median of the rounds' ratios")


def _limiter(policy: Any) -> RateLimiter:
    store = Away()
    limiter = RateLimiter(store, _QUOTA, on_failure=policy or "closed")
    if policy is not None:
        store.away = True
        for n in range(3):
            limiter.try_acquire(f"another {n}")
        assert not limiter.statistics().available
    return limiter


def _timed(limiter: RateLimiter) -> float:
    call = limiter.try_acquire
    _run(call, _CALLS // 10)
    taken = _run(call, _CALLS)
    limiter.close()
    return taken


def _run(call: Callable[[str], bool], calls: int) -> float:
    begun = time.perf_counter_ns()
    for _ in repeat(None, calls):
        call("key")
    return (time.perf_counter_ns() - begun) / calls


async def _awaited(policy: Any) -> float:
    store = Away()
    limiter = AsyncRateLimiter(AsyncMemoryStore(store), _QUOTA, on_failure=policy or "closed")
    if policy is not None:
        store.away = True
        for n in range(3):
            await limiter.try_acquire(f"another {n}")
        assert not limiter.statistics().available
    await _await(limiter, _CALLS // 10)
    taken = await _await(limiter, _CALLS)
    await limiter.close()
    return taken


async def _await(limiter: AsyncRateLimiter, calls: int) -> float:
    call, begun = limiter.try_acquire, time.perf_counter_ns()
    for _ in repeat(None, calls):
        await call("key")
    return (time.perf_counter_ns() - begun) / calls


def main() -> None:
    """Print one figure a line."""
    logging.getLogger("batchlimit").setLevel(logging.ERROR)  # each limiter says that its store is away
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report(chain(threads(arguments.rounds), tasks(arguments.rounds)), as_document=arguments.json)


if __name__ == "__main__":
    main()
