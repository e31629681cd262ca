"""What a limiter costs within one process: a stampede on a cold key, a hit, and the blocks of memory a hit leaves."""

import gc
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import repeat
from typing import NamedTuple

from batchlimit import Quota, RateLimiter, RedisStore
from batchlimit.core.lease import Ask, Grant
from benchmarks.figures import Figure
from benchmarks.tasks import Loop, crowds

_STAMPEDE = 32
_PATIENCE = 10.0
_HITS = 20_000
# So rich that a lease outlasts a round: what is timed are hits.
_RICH = "50_000_000/s burst 50_000_000"


class Bare:
    """The least that any limiter with an exact count does, called in the same way: a lock and a subtraction."""

    def __init__(self, tokens: int) -> None:
        self.lock = threading.Lock()
        self.n = tokens

    def take(self, key: str) -> bool:
        with self.lock:
            self.n -= 1
        return True


class Distant(RedisStore):
    """A server so far away that all callers stand in line before its first answer arrives."""

    all_there: threading.Event

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        grant = super().take(key, quota, ask)
        self.all_there.wait(_PATIENCE)
        return grant


def stampede(url: str, rounds: int) -> Iterator[Figure]:
    """Many threads meet on a key that nobody has a token of: far from the server, and as near as this one is."""
    with ThreadPoolExecutor(_STAMPEDE) as pool:
        far = [_charge(Distant.from_url(url), pool, wait=True) for _ in range(rounds)]
        near = [_charge(Distant.from_url(url), pool, wait=False) for _ in range(rounds)]
    note = f"the worst of {rounds} cold keys with 1,000 tokens each, {_STAMPEDE} threads behind a barrier"
    yield Figure("stampede: store calls, all there by the first answer", max(far)[0], at_most=2, note=note)
    late = f"median {statistics.median(calls for calls, _ in near):g}; who comes after the second answer asks anew"
    yield Figure("stampede: store calls, this server", max(near)[0], note=late)
    yield Figure("stampede: refused while there were tokens", sum(refused for _, refused in far + near), at_most=0)
    yield from crowds(url, rounds)


def _charge(store: Distant, pool: ThreadPoolExecutor, *, wait: bool) -> tuple[int, int]:
    """Store calls and refusals; a limiter for each key, so that no earlier key's lease goes back meanwhile."""
    barrier, key = threading.Barrier(_STAMPEDE), f"cold-{secrets.token_hex(4)}"
    store.all_there = threading.Event()

    def call() -> bool:
        barrier.wait()
        return limiter.try_acquire(key)

    with closing(store), RateLimiter(store, "1000/s burst 1000", deadline=1.0) as limiter:
        answers = [pool.submit(call) for _ in range(_STAMPEDE)]
        deadline = time.monotonic() + _PATIENCE
        while wait and limiter.statistics().waiting < _STAMPEDE - 1 and time.monotonic() < deadline:
            time.sleep(0.001)
        store.all_there.set()
        refused = sum(not answer.result() for answer in answers)
        return limiter.statistics().calls, refused


class Round(NamedTuple):
    """Nanoseconds a call, all in the same moments."""

    threaded: float
    awaited: float
    bare: float


def hit(url: str, rounds: int) -> Iterator[Figure]:
    """One thread and a leased key, or one task, in turn with the bare minimum in the same process."""
    bare = Bare(_HITS * rounds)
    with RateLimiter.from_url(url, _RICH, deadline=1.0) as limiter, Loop(url, _RICH) as loop:
        _warm(limiter)
        loop.timed(10 * _HITS)
        timings = [Round(_timed(limiter.try_acquire), loop.timed(_HITS), _timed(bare.take)) for _ in range(rounds)]
        yield from _times(timings)
        yield Figure("hit: blocks that stay allocated", _growth(limiter), at_most=0, note="after 100,000 hits")
        yield Figure("hit: blocks that stay, awaited", loop.growth(100_000), at_most=0, note="after 100,000 hits")


def _times(timings: list[Round]) -> Iterator[Figure]:
    threaded, awaited, bare = map(statistics.median, zip(*timings, strict=True))
    yield Figure("hit: try_acquire", threaded, "ns", note=_per_round(len(timings)))
    yield Figure("hit: await try_acquire", awaited, "ns", note="one task of another limiter, as often")
    yield Figure("hit: lock and subtraction", bare, "ns")
    note = "median of the rounds' ratios"
    yield Figure("hit: ratio", statistics.median(each.threaded / each.bare for each in timings), at_most=3, note=note)
    against = statistics.median(each.awaited / each.threaded for each in timings)
    yield Figure("hit: async/threaded", against, at_most=0.8, note=note)


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
