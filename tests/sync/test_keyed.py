"""Threads at many keys, one and several at a time: never more at a key than its limit, and all of them end."""

import random
import threading
from collections import Counter
from functools import partial

from batchlimit import Queue
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter
from tests.sync.stage import DEADLINE, start

QUEUE = Queue(1000, max_wait=None)
LIMITS = {"user:*": 1, "repo:*": 2, "all": 3}
KEYS = [f"user:{n}" for n in range(3)] + [f"repo:{n}" for n in range(3)] + ["all"]


class Held:
    """How many calls are under way at each key, as their callers say."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def change(self, keys: tuple[str, ...], by: int) -> None:
        with self._lock:
            for key in keys:
                self._now[key] += by
                self.most[key] = max(self.most[key], self._now[key])


def test_many_threads_at_several_keys_exceed_no_limit_and_never_block_each_other() -> None:
    limiter = KeyedConcurrencyLimiter({name: Keyed(limit, queue=QUEUE) for name, limit in LIMITS.items()}, max_keys=2)
    held = Held()

    def run(number: int) -> None:
        choose = random.Random(number)
        for _ in range(150):
            keys = choose.sample(KEYS, choose.randrange(1, 5))
            with limiter.acquire_all(keys, timeout=DEADLINE) as permits:
                held.change(permits.keys, 1)
                held.change(permits.keys, -1)

    for caller in [start(partial(run, number)) for number in range(8)]:
        caller.result(DEADLINE)
    assert all(held.most[key] <= LIMITS[key if key == "all" else f"{key.split(':')[0]}:*"] for key in KEYS)
    seen = limiter.statistics().patterns
    assert sum(pattern.in_flight + pattern.waiting for pattern in seen.values()) == 0
