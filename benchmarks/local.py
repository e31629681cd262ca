"""What a limiter costs within one process: a stampede on a cold key, a hit, and the blocks of memory a hit leaves."""

import secrets
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from batchlimit import Quota, RateLimiter
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.stores import RedisStore
from benchmarks.figures import Figure
from benchmarks.tasks import crowds

_STAMPEDE = 32
_PATIENCE = 10.0


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
