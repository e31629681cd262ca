"""The tally counts the calls that waited for the store: those that asked, those in line behind one, and no others."""

import asyncio

import pytest

from batchlimit.base.waking import Event
from batchlimit.stores import MemoryStore
from benchmarks.audited_fleet.limiter import AsyncWatchedLimiter, WatchedLimiter
from tests.sync.stage import DEADLINE, KEY, Clock, Gate, Stage, start, until


def test_callers_that_ask_or_queue_count_as_waiting_and_hits_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asleep: list[Event] = []

    class Noting(Event):
        def wait(self, seconds: float | None) -> bool:
            asleep.append(self)
            return super().wait(seconds)

    monkeypatch.setattr("batchlimit.sync.key_entry.KeyEntry.thread_event", lambda _entry: Noting())
    clock = Clock()
    stage, gate = Stage(MemoryStore(clock)), Gate()
    stage.before = gate
    with WatchedLimiter(stage, "1/hour burst 8", clock=clock) as limiter:

        def two_calls() -> list[int]:
            """What this thread's tally says after a call at a cold key, and after one that finds tokens or a denial."""
            counts = []
            for _ in range(2):
                limiter.try_acquire(KEY)
                counts.append(limiter.tally.waited)
            return counts

        callers = [start(two_calls) for _ in range(8)]
        until(lambda: len({*asleep}) == 7)  # all but the one that asks
        gate.open()
        assert [caller.result(DEADLINE)[0] for caller in callers] == [1] * 8
        assert limiter.tally.waited == 0
        asked = len(stage.asks)
        assert start(two_calls).result(DEADLINE) == [0, 0]
        assert len(stage.asks) == asked


def test_so_it_is_with_tasks() -> None:
    async def two_calls(limiter: AsyncWatchedLimiter) -> list[int]:
        counts = []
        for _ in range(2):
            await limiter.try_acquire(KEY)
            counts.append(limiter.tally.waited)
        return counts

    async def tell() -> tuple[list[list[int]], list[int], int]:
        clock = Clock()
        async with AsyncWatchedLimiter(MemoryStore(clock), "1/hour burst 8", clock=clock) as limiter:
            # All are in line before the first ask is under way: it leaves in a task of its own.
            crowd = await asyncio.gather(*(two_calls(limiter) for _ in range(8)))
            late = await asyncio.create_task(two_calls(limiter))
            return crowd, late, limiter.tally.waited

    crowd, late, mine = asyncio.run(tell())
    assert [first for first, _ in crowd] == [1] * 8
    assert late == [0, 0]
    assert mine == 0
