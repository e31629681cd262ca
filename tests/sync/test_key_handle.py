"""`limiter.bucket(key)`: the limiter of one key, whatever becomes of the key meanwhile."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from batchlimit import LimiterClosed, Queue, Quota, RateLimited, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter
from batchlimit.stores import MemoryStore
from batchlimit.sync.handles import KeyHandle
from tests.sync.stage import DEADLINE, KEY, Clock, Stage, start

TEN = Quota(0.001, 10)


@pytest.fixture
def limiter(clock: Clock) -> RateLimiter:
    """Ten tokens, and time stands still."""
    return RateLimiter(Stage(MemoryStore(clock)), TEN, sizer=FixedBatch(5), idle_after=1.0, clock=clock)


def test_to_make_one_asks_nobody_and_starts_nothing(limiter: RateLimiter) -> None:
    """So it may be made where a module is imported, before a server forks."""
    before = set(threading.enumerate())  # those of other tests may end meanwhile
    bucket = limiter.bucket(KEY)
    assert (limiter.statistics().keys, limiter.statistics().calls) == (0, 0)
    assert set(threading.enumerate()) <= before
    assert repr(bucket) == f"<Bucket {KEY!r} of <RateLimiter on stage://: 0 keys>>"


@pytest.mark.parametrize("key", ["", 7, None, b"key"])
def test_a_wrong_key_is_an_error_at_once(limiter: RateLimiter, key: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as told:
        limiter.bucket(key)
    with pytest.raises(type(told.value), match=str(told.value)):
        limiter.try_acquire(key)


def test_it_speaks_for_its_key_alone(limiter: RateLimiter) -> None:
    bucket = limiter.bucket(KEY)
    bucket.acquire(2)
    assert bucket.decide(3).allowed
    assert bucket.peek().remaining == 5
    assert bucket.try_acquire(4)
    bucket.refund(2)
    with bucket.reserve(3) as reservation:
        reservation.settle(2)
    assert [bucket.try_acquire() for _ in range(2)] == [True, False]
    with pytest.raises(RateLimited):
        bucket.acquire(timeout=0)
    assert limiter.try_acquire("another", 10)


@pytest.mark.parametrize("cost", [True, 1.0, "1", -1, 11])
def test_a_wrong_cost_is_an_error_as_ever(limiter: RateLimiter, cost: Any) -> None:
    bucket = limiter.bucket(KEY)
    assert bucket.try_acquire()
    with pytest.raises((TypeError, ValueError)) as told:
        bucket.try_acquire(cost)
    with pytest.raises(type(told.value)):
        limiter.try_acquire(KEY, cost)


def _idle(limiter: RateLimiter, clock: Clock) -> None:
    entry = limiter._entries[KEY]
    clock.now += 10_000.0
    entry.tend()
    clock.now += 10_000.0
    entry.tend()
    assert entry.reservoir.state.is_retired


def _crowded_out(limiter: RateLimiter, _clock: Clock) -> None:
    assert limiter._registry._keyspace.evict(limiter._entries[KEY])


@pytest.mark.usefixtures("without_refresher")
@pytest.mark.parametrize("leave", [_idle, _crowded_out])
def test_it_finds_its_key_again_that_left(
    limiter: RateLimiter, clock: Clock, leave: Callable[[RateLimiter, Clock], None]
) -> None:
    """And spends nothing of what was there."""
    bucket = limiter.bucket(KEY)
    spent = sum(bucket.try_acquire() for _ in range(3))
    leave(limiter, clock)
    clock.now += 100_000.0  # full again
    while bucket.try_acquire():
        spent += 1
    assert spent == 3 + 10
    assert limiter.statistics().admitted == 13


def test_it_ends_with_its_limiter(limiter: RateLimiter) -> None:
    bucket = limiter.bucket(KEY)
    assert all(bucket.try_acquire() for _ in range(3))
    limiter.close()
    with pytest.raises(LimiterClosed):
        bucket.try_acquire()


def test_it_keeps_its_limiter(clock: Clock) -> None:
    """Which would end, and give back its tokens, when it is let go of."""
    bucket: KeyHandle = RateLimiter(MemoryStore(clock), TEN, clock=clock).bucket(KEY)
    assert bucket.try_acquire()


# Threads at many keys, one and several at a time: never more at a key than its limit, and all of them end


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
