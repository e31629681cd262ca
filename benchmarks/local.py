"""What a limiter costs within one process: a stampede on a cold key, a hit, and the blocks of memory a hit leaves."""

import gc
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from batchlimit import RateLimiter
from benchmarks.figures import Figure

_STAMPEDE = 32
_HITS = 20_000
# So rich that a lease outlasts a round: what is timed are hits.
_RICH = "50_000_000/s burst 50_000_000"


class Bare:
    """The least that any limiter with an exact count does for a call: a lock and a subtraction."""

    def __init__(self, tokens: int) -> None:
        self.lock = threading.Lock()
        self.n = tokens

    def take(self, key: str) -> bool:
        with self.lock:
            self.n -= 1
        return True


def stampede(url: str, rounds: int) -> Iterator[Figure]:
    """Many threads meet on a key that nobody has a token of."""
    calls, refused = [], 0
    with RateLimiter.from_url(url, "1000/s burst 1000") as limiter, ThreadPoolExecutor(_STAMPEDE) as pool:
        limiter.try_acquire("warm")  # connected, and the script is on the server
        for number in range(rounds):
            before = limiter.statistics().calls
            refused += _charge(limiter, pool, f"cold-{number}").count(False)
            calls.append(limiter.statistics().calls - before)
    note = f"{_STAMPEDE} threads behind a barrier, the worst of {rounds} cold keys; {_STAMPEDE} tokens of 1,000 wanted"
    yield Figure("stampede: store calls", max(calls), at_most=2, note=note)
    yield Figure("stampede: refused while there were tokens", refused, at_most=0)


def _charge(limiter: RateLimiter, pool: ThreadPoolExecutor, key: str) -> list[bool]:
    barrier = threading.Barrier(_STAMPEDE)

    def call(_: int) -> bool:
        barrier.wait()
        return limiter.try_acquire(key)

    return list(pool.map(call, range(_STAMPEDE)))


def hit(url: str, rounds: int) -> Iterator[Figure]:
    """One thread and a leased key, in turn with the bare minimum in the same process."""
    bare = Bare(_HITS * rounds)
    with RateLimiter.from_url(url, _RICH) as limiter:
        _warm(limiter)
        timings = [(_timed(limiter.try_acquire), _timed(bare.take)) for _ in range(rounds)]
        yield Figure("hit: try_acquire", statistics.median(ours for ours, _ in timings), "ns", note=_per_round(rounds))
        yield Figure("hit: lock and subtraction", statistics.median(least for _, least in timings), "ns")
        ratio = statistics.median(ours / least for ours, least in timings)
        yield Figure("hit: ratio", ratio, at_most=3, note="median of the rounds' ratios")
        yield Figure("hit: blocks that stay allocated", _growth(limiter), at_most=0, note="after 100,000 hits")


def _per_round(rounds: int) -> str:
    return f"one thread, median of {rounds} rounds of {_HITS:,} calls each, in turn"


def _warm(limiter: RateLimiter) -> None:
    for _ in repeat(None, 10 * _HITS):
        limiter.try_acquire("hot")


def _timed(call: Callable[[str], bool]) -> float:
    """Nanoseconds a call."""
    begun = time.perf_counter_ns()
    for _ in repeat(None, _HITS):
        call("hot")
    return (time.perf_counter_ns() - begun) / _HITS


def _growth(limiter: RateLimiter) -> int:
    """The least of several tries, because a lease that ends meanwhile allocates for its renewal."""
    gc.collect()
    grown = []
    for _ in range(5):
        before = sys.getallocatedblocks()
        for _ in repeat(None, 100_000):
            limiter.try_acquire("hot")
        grown.append(sys.getallocatedblocks() - before)
    return max(0, min(grown))
