"""What stays in memory of a million keys of a concurrency limiter that had one call each.

    python -m benchmarks.permit_keys [--keys N]

The memory of a process of its own before, at its peak, and when all calls are over. Ten thousand keys are kept
(`max_keys`). Then a tenth of the keys, with all calls under way at once: these keys have to stay until the calls end.
Exit status 1 if a target was missed.
"""

import argparse
import gc
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from batchlimit.concurrency import KeyedConcurrencyLimiter, Permit
from benchmarks.figures import Figure, ran_on
from benchmarks.memory import apart, resident

_MEBI = 2**20
_AT_MOST = 64.0
"""MiB that 10,000 kept keys (3.6 kB each), and what the allocator keeps, may take."""
_LOOKS = 16
"""The memory is looked at so often while keys come."""


class Seen(NamedTuple):
    """The memory of a process (bytes), and how many keys the limiter kept."""

    before: int
    peak: int
    after: int
    kept: int
    objects: float


def passing(keys: int) -> Seen:
    """Each key has one call, one after another."""
    with KeyedConcurrencyLimiter({"*": 5}) as limiter:
        return _seen(limiter, keys, 0)


def crowded(keys: int) -> Seen:
    """All calls are under way at once; then they end."""
    with KeyedConcurrencyLimiter({"*": 5}) as limiter:
        return _seen(limiter, keys, keys)


def _seen(limiter: KeyedConcurrencyLimiter, keys: int, at_once: int) -> Seen:
    limiter.acquire("first").success()
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    looks, added = [before], 0
    permits: list[Permit] = []
    for number in range(keys):
        permit = limiter.acquire(f"tenant:{number}")
        if len(permits) < at_once:
            permits.append(permit)
        else:
            permit.success()
        if number % (keys // _LOOKS or 1) == 0 or number == keys - 1:
            looks.append(resident())
            added = max(added, sys.getallocatedblocks() - blocks)
    for permit in permits:
        permit.success()
    permits.clear()
    limiter.acquire("last").success()
    gc.collect()
    kept = limiter.statistics().patterns["*"].keys
    return Seen(before, max(looks), resident(), kept, (sys.getallocatedblocks() - blocks) / max(1, added))


def figures(keys: int) -> Iterator[Figure]:
    """The memory of each process, and how many keys are kept."""
    one = apart(passing, keys)
    yield from _memory(f"{keys:,} keys, one call each", one, at_most=_AT_MOST)
    yield Figure("keys kept", one.kept, "keys", at_most=10_001)
    many = apart(crowded, keys // 10)
    yield from _memory(f"{keys // 10:,} keys, all calls under way at once", many, at_most=None)
    yield Figure("keys kept when they were over", many.kept, "keys", at_most=10_001)
    yield Figure("objects left of those that they added", 100 * many.objects, "%", at_most=15)


def _memory(what: str, seen: Seen, at_most: float | None) -> Iterator[Figure]:
    yield Figure(f"{what}: before", seen.before / _MEBI, "MiB")
    yield Figure(f"{what}: added at its peak", (seen.peak - seen.before) / _MEBI, "MiB", at_most=at_most)
    yield Figure(f"{what}: added in the end", (seen.after - seen.before) / _MEBI, "MiB", at_most=at_most)


def main() -> int:
    """Print one figure a line; the exit status says whether a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    chosen = parser.parse_args()
    print(f"{ran_on()}; load {os.getloadavg()[0]:.1f}", flush=True)
    missed = False
    for figure in figures(chosen.keys):
        print(figure, flush=True)
        missed = missed or figure.verdict == "short"
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
