"""Many threads at one key: whether they get as much done together as one alone, in hits, in refills and in refusals."""

import secrets
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from batchlimit import RateLimiter
from batchlimit.batching import FixedBatch
from benchmarks.figures import Figure
from benchmarks.floor import TIMED, floor, timed

_CROWDS = (1, 8, 64)
_SECONDS = 0.5
_RICH = "50_000_000/s burst 50_000_000"
_BATCH = 1000
_AT_ONCE = 1000
"""Calls between two looks at the clock."""


def together(call: TIMED, threads: int, seconds: float) -> float:
    """Return calls/s of so many threads that begin behind a barrier.

    Counted is from when the first begins to when the last has ended. The interpreter lets one run at a time, for 5 ms:
    `seconds` has to be long enough for all of them to be interrupted, wherever they are just then.
    """
    barrier = threading.Barrier(threads)

    def work() -> tuple[float, float, int]:
        barrier.wait()
        calls, begun = 0, time.perf_counter()
        ended = begun
        while not calls or ended < begun + seconds:
            call(_AT_ONCE)
            calls, ended = calls + _AT_ONCE, time.perf_counter()
        return begun, ended, calls

    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(work) for _ in range(threads)]
        spans = [each.result() for each in workers]
    first, last = min(begun for begun, _, _ in spans), max(ended for _, ended, _ in spans)
    return sum(calls for _, _, calls in spans) / (last - first)


def crowds(url: str, rounds: int) -> Iterator[Figure]:
    """Throughput of eight and of 64 threads over that of one; the empty function shows what the harness does to it."""
    prefix, batch = f"bench-{secrets.token_hex(4)}", FixedBatch(_BATCH)
    with (
        RateLimiter.from_url(url, _RICH, prefix=f"{prefix}-rich", deadline=1.0) as limiter,
        RateLimiter.from_url(url, _RICH, prefix=prefix, sizer=batch, deadline=1.0) as hungry,
        RateLimiter.from_url("memory://", _RICH, sizer=batch) as near,
    ):
        every = {
            "an empty function": timed("nothing('hot')", nothing=lambda key: None),
            "lock, test and subtraction": floor(),
            "hits": timed("limiter.try_acquire('hot')", limiter=limiter),
            "hits in batches of 1,000": timed("limiter.try_acquire('hot')", limiter=hungry),
            "the same, memory://": timed("limiter.try_acquire('hot')", limiter=near),
            "hits by bucket(key)": timed("bucket.try_acquire()", bucket=limiter.bucket("hot")),
        }
        seen = [{name: _by_crowd(call) for name, call in every.items()} for _ in range(rounds)]
    for name in every:
        yield from _scaling(name, [each[name] for each in seen])


def _by_crowd(call: TIMED) -> dict[int, float]:
    return {threads: together(call, threads, _SECONDS) for threads in _CROWDS}


def _scaling(name: str, rounds: list[dict[int, float]]) -> Iterator[Figure]:
    aims = name.startswith(("hits", "the same"))
    alone = statistics.median(each[1] for each in rounds) / 1e6
    note = f"median of {len(rounds)} rounds of {_SECONDS} s each"
    yield Figure(f"crowd: {name}, one thread", alone, "M/s", note=note)
    for threads in _CROWDS[1:]:
        share = statistics.median(100 * each[threads] / each[1] for each in rounds)
        yield Figure(f"crowd: {name}, {threads} threads/one", share, "%", at_least=85.0 if aims else None)


def refusals(url: str, rounds: int) -> Iterator[Figure]:
    """What a dry key costs that threads hammer: decisions/s of all together, and calls of the store."""
    bare = floor()
    for threads in (1, 8):
        with RateLimiter.from_url(url, "100/s", prefix=f"bench-{secrets.token_hex(4)}", deadline=1.0) as limiter:
            hammer = timed("limiter.try_acquire('dry')", limiter=limiter)
            rates = [[together(each, threads, _SECONDS) / 1e6 for each in (hammer, bare)] for _ in range(rounds)]
            calls = limiter.statistics().calls / (rounds * _SECONDS)
        name = f"refusals: 100/s hammered by {threads} thread{'s' * (threads > 1)}"
        refused, least = map(statistics.median, zip(*rates, strict=True))
        note = f"{least:.2f} M/s lock, test and subtraction; median of {rounds} rounds of {_SECONDS} s, in turn"
        yield Figure(name, refused, "M/s", at_least=5.0 if threads > 1 else None, note=note)
        yield Figure(f"{name}, store calls/s", calls, at_most=200)
