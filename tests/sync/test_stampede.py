"""Many threads at once: few calls of the store, nobody refused while there are tokens, and never a token too many."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.batching import BatchSizer, FixedBatch, FractionBatch, GrowingBatch, TimeBatch
from batchlimit.reservoir import tokens
from batchlimit.stores import MemoryStore, RedisStore, Store
from tests.sync.stage import DEADLINE, KEY, Clock, Gate, Stage, spend, start, together, until

SLOW = 0.001


@pytest.fixture(params=["memory", "valkey"])
def stage(request: pytest.FixtureRequest) -> Stage:
    """A stage before buckets in this process, and before those on a real server."""
    if request.param == "memory":
        return Stage()
    return Stage(request.getfixturevalue("valkey_store"))


def stampede(limiter: RateLimiter, stage: Stage, threads: int, call: Callable[[], bool]) -> list[bool]:
    """Let all threads be in line at a cold key before the first of them has its answer."""
    gate = Gate()
    stage.before = gate
    futures = [start(call) for _ in range(threads)]
    until(lambda: limiter.statistics().waiting == threads)
    gate.open()
    return [each.result(DEADLINE) for each in futures]


# At a cold key


@pytest.mark.parametrize("burst", [32, 33, 1000])
@pytest.mark.parametrize(("threads", "cost"), [(32, 1), (33, 1), (32, 5)])
@pytest.mark.parametrize("call", ["try_acquire", "decide"])
@pytest.mark.usefixtures("far_away")
def test_a_stampede_makes_two_calls_and_nobody_is_refused_but_who_is_too_many(
    stage: Stage, burst: int, threads: int, cost: int, call: str
) -> None:
    """A refusal without a known wait was once a decision that said allowed."""
    with RateLimiter(stage, Quota(SLOW, burst * cost)) as limiter:
        told = stampede(limiter, stage, threads, lambda: bool(getattr(limiter, call)(KEY, cost)))
        served = min(threads, burst)
        assert told.count(True) == served
        assert len(stage.asks) <= 2 + (served < threads)
        assert (limiter.statistics().admitted, limiter.statistics().refused) == (served * cost, threads - served)


@pytest.mark.usefixtures("far_away")
def test_a_stampede_at_many_keys(stage: Stage) -> None:
    with RateLimiter(stage, Quota(SLOW, 8)) as limiter:
        admitted = together(16, lambda: sum(limiter.try_acquire(f"key-{i}") for i in range(20)))
        assert sum(admitted) == 8 * 20
        assert limiter.statistics().keys == 20


# At a key that is empty for a moment


def at_an_empty_key(stage: Stage, **options: Any) -> RateLimiter:
    """The last fetch brought a hundred tokens, and they are gone."""
    limiter = RateLimiter(stage, "1_000_000/s burst 1_000_000", sizer=FixedBatch(100), **options)
    limiter.acquire(KEY)
    limiter.acquire(KEY, 99)
    return limiter


@pytest.mark.usefixtures("far_away", "without_refresher")
def test_one_fetches_and_all_others_find_tokens_one_after_the_other() -> None:
    """None of them is in line, to be woken from there."""
    stage = Stage()
    with at_an_empty_key(stage) as limiter:
        gate = stage.before = Gate()
        calls = [start(lambda: limiter.try_acquire(KEY)) for _ in range(16)]
        until(lambda: gate.reached)
        before = len(stage.asks)
        assert limiter.statistics().waiting == 1
        gate.open()
        assert all(call.result(DEADLINE) for call in calls)
        assert len(stage.asks) == before


@pytest.mark.usefixtures("without_refresher")
def test_a_thread_interrupted_in_the_refill_gate_keeps_nobody_out_for_long(clock: Clock) -> None:
    """Between two bytecodes a Ctrl-C may leave it closed for ever."""
    with at_an_empty_key(Stage(MemoryStore(clock)), deadline=0.05, clock=clock) as limiter:
        entry = limiter._entries[KEY]
        gate = entry.refill_gate
        assert gate is not None
        assert gate.acquire(timeout=0)
        assert limiter.try_acquire(KEY)
        assert entry.refill_gate is not None
        assert entry.refill_gate.acquire(timeout=0), "there is a new one"


# Later


@pytest.fixture(params=["memory", "valkey"])
def store(request: pytest.FixtureRequest) -> Store:
    """Buckets in this process, and on a real server."""
    if request.param == "memory":
        return MemoryStore()
    found: RedisStore = request.getfixturevalue("valkey_store")
    return found


def test_nobody_is_refused_while_there_are_tokens(store: Store) -> None:
    with RateLimiter(store, "1_000_000/s burst 1_000_000") as limiter:
        calls = 20_000
        assert together(8, lambda: sum(limiter.try_acquire(KEY) for _ in range(calls))) == [calls] * 8
        assert (limiter.statistics().admitted, limiter.statistics().refused) == (8 * calls, 0)


SIZERS: list[BatchSizer] = [TimeBatch(), FixedBatch(1), FixedBatch(37), FractionBatch(0.05), GrowingBatch()]


@pytest.mark.parametrize("sizer", SIZERS, ids=str)
def test_sixteen_threads_together_spend_exactly_the_burst(sizer: BatchSizer) -> None:
    """Time stands still: no lease is lost on a slow machine, and nothing is refilled on a slower one."""
    clock = Clock()
    with RateLimiter(MemoryStore(clock), Quota(SLOW, 1000), sizer=sizer, clock=clock) as limiter:
        spent = sum(together(16, lambda: spend(limiter)))
        assert spent + spend(limiter) == 1000
        assert (limiter.statistics().admitted, limiter.statistics().held) == (1000, 0)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("batch", [3, 100])
@pytest.mark.parametrize("most", [tokens.MOST, 0], ids=["laid out", "without the GIL"])
def test_hits_and_whatever_takes_the_same_tokens_under_the_lock_spend_exactly_the_burst(
    batch: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is laid out is stepped through by some, and taken back by others, at the same moment."""
    monkeypatch.setattr(tokens, "MOST", most)
    clock = Clock()
    with RateLimiter(MemoryStore(clock), Quota(SLOW, 8000), sizer=FixedBatch(batch), clock=clock) as limiter:
        bucket = limiter.bucket(KEY)

        def alone() -> int:
            return spend(limiter)

        def several() -> int:
            spent = 0
            while limiter.try_acquire(KEY, 3):
                spent += 3
            return spent

        def bound() -> int:
            spent = 0
            while bucket.try_acquire():
                spent += 1
            return spent

        with ThreadPoolExecutor(8) as pool:
            spent = sum(
                each.result(DEADLINE) for each in [pool.submit(call) for call in (alone, bound, several, alone) * 2]
            )
        assert spent + spend(limiter) == 8000
        assert (limiter.statistics().admitted, limiter.statistics().held) == (8000, 0)


def test_refunds_and_calls_at_once_lose_and_mint_nothing() -> None:
    clock = Clock()
    stage = Stage(MemoryStore(clock))
    quota = Quota(SLOW, 500)
    with RateLimiter(stage, quota, sizer=FixedBatch(20), clock=clock) as limiter:

        def borrow() -> int:
            kept = 0
            for i in range(300):
                if limiter.try_acquire(KEY):
                    if i % 3:
                        limiter.refund(KEY)
                    else:
                        kept += 1
            return kept

        kept = sum(together(8, borrow))
        level = stage.peek(KEY, quota)
        assert kept + limiter.statistics().held + level.level <= 500
        assert kept + spend(limiter) <= 500
