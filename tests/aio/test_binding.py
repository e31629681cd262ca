"""A limiter binds to an event loop whole or not at all, wherever an interrupt falls."""

import asyncio
import gc
from pathlib import Path

import pytest

from batchlimit import AsyncRateLimiter, Quota
from batchlimit.batching import FixedBatch
from batchlimit.rules import RuleFile
from batchlimit.stores import MemoryStore
from tests.aio.stage import KEY, SLOW
from tests.sync.interrupter import Interrupter

HUNDRED = Quota(SLOW, 100)
RULES = [f"aio/{each}" for each in ("awaitable", "guarded_store", "home", "key_entry", "registry")]

pytestmark = pytest.mark.usefixtures("far_away")


async def interrupted_at(n: int, limiter: AsyncRateLimiter) -> bool:
    """Interrupt the binding at its nth line, and use the limiter after that; return whether it has so many lines."""
    interrupter = Interrupter(n, *RULES, under_lock=True)
    was_interrupted = interrupter.run(limiter._registry.settle_in)
    await limiter.peek(KEY)  # hits do not bind
    assert await limiter.try_acquire(KEY), interrupter.line
    held = limiter.statistics().held
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)  # time for whatever an interrupt left behind
    assert limiter.statistics().held == held > 0, f"{interrupter.line}: the tokens were given back"
    assert await limiter.try_acquire(KEY), interrupter.line
    return was_interrupted


def test_a_limiter_that_was_interrupted_while_it_bound_to_a_loop_binds_to_it_again() -> None:
    n, was_interrupted = 0, True
    while was_interrupted:
        n, store = n + 1, MemoryStore()
        limiter = AsyncRateLimiter(store, HUNDRED, sizer=FixedBatch(20))
        was_interrupted = asyncio.run(interrupted_at(n, limiter))
        assert (store.peek(KEY, HUNDRED).level, store.peek(KEY, HUNDRED).outstanding) == (98, 0), f"line {n}"
    assert n > 15


def test_so_does_one_that_leaves_a_closed_loop() -> None:
    n, was_interrupted, levels = 0, True, set()
    while was_interrupted:
        n, store = n + 1, MemoryStore()
        limiter = AsyncRateLimiter(store, HUNDRED, sizer=FixedBatch(20))
        before = asyncio.new_event_loop()
        assert before.run_until_complete(_one(limiter))
        before.close()
        was_interrupted = asyncio.run(interrupted_at(n, limiter))
        levels.add(store.peek(KEY, HUNDRED))
    assert n > 20
    assert len(levels) == 1, "as without an interrupt"


def test_so_does_one_whose_file_has_changed(tmp_path: Path) -> None:
    path, n, was_interrupted = tmp_path / "limits.toml", 0, True
    while was_interrupted:
        n, store = n + 1, MemoryStore()
        path.write_text('limits = {"*" = "10/h"}')
        file = RuleFile(path)
        limiter = AsyncRateLimiter(store, file, sizer=FixedBatch(20))
        asyncio.run(_one(limiter))
        path.write_text('limits = {"*" = "100/h"}')
        file.look()
        was_interrupted = asyncio.run(interrupted_at(n, limiter))
        assert limiter.rules.explain(KEY).quota == Quota.parse("100/h"), f"line {n}"
    assert n > 20


async def _one(limiter: AsyncRateLimiter) -> bool:
    return await limiter.try_acquire(KEY)
