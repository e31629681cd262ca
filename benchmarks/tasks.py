"""What benchmarks/hits.py and local.py measure, for the async API: hits on a loop of its own, and crowds of tasks."""

import asyncio
import gc
import math
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from itertools import repeat
from types import TracebackType
from typing import NamedTuple, Self

from batchlimit import AsyncRateLimiter, Quota
from batchlimit.bucket.messages import Ask, Grant, Groups, SpendReply
from batchlimit.stores import AsyncRedisStore
from batchlimit.stores.protocols import Sent
from benchmarks.figures import Figure

_CROWD = 1000


class Loop:
    """An async limiter at home on a loop that runs only while something is measured, so that others get their turn."""

    def __init__(self, url: str, quota: str) -> None:
        self._runner = asyncio.Runner()
        self._limiter = AsyncRateLimiter.from_url(url, quota, deadline=1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._limiter.close())
        self._runner.close()

    def timed(self, hits: int) -> float:
        """Nanoseconds a hit."""
        return self._runner.run(_timed(self._limiter, hits))

    def growth(self, hits: int) -> int:
        """Blocks of memory that stay allocated after so many hits: the least of several tries, as with threads."""
        return self._runner.run(_growth(self._limiter, hits))


async def _timed(limiter: AsyncRateLimiter, hits: int) -> float:
    await _renew(limiter)
    try_acquire = limiter.try_acquire
    begun = time.perf_counter_ns()
    for _ in repeat(None, hits):
        await try_acquire("hot")
    return (time.perf_counter_ns() - begun) / hits


async def _growth(limiter: AsyncRateLimiter, hits: int) -> int:
    grown = []
    gc.collect()
    for _ in range(10):
        await _renew(limiter)
        before = sys.getallocatedblocks()
        for _ in repeat(None, hits):
            await limiter.try_acquire("hot")
        grown.append(sys.getallocatedblocks() - before)
    return max(0, min(grown))


async def _renew(limiter: AsyncRateLimiter) -> None:
    """Lease again, and ahead: while the loop stood still, so did the timer that sees to it."""
    for _ in range(3):
        await limiter.try_acquire("hot")
        await asyncio.sleep(0.002)


class Crowded(NamedTuple):
    """What became of a crowd at a cold key."""

    calls: int
    refused: int
    in_flight: int
    """Asks that were under way at the same time, at the most."""


class CountingStore(AsyncRedisStore):
    """Notes how often it is called, and how many asks are under way at the same time."""

    in_flight = most = calls = 0

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        self._begin()
        try:
            return await super().take(key, quota, ask)
        finally:
            self._end()

    def send(self, key: str, quota: Quota, ask: Ask) -> Sent[Grant] | None:
        if (sent := super().send(key, quota, ask)) is not None:
            self._begin()
            sent[0].add_done_callback(self._end)
        return sent

    async def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        self.calls += 1
        return await super().spend(groups, look=look, within=within)

    def send_spend(self, groups: Groups, *, look: bool, within: float) -> Sent[SpendReply] | None:
        sent = super().send_spend(groups, look=look, within=within)
        self.calls += sent is not None
        return sent

    def _begin(self) -> None:
        self.calls += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)

    def _end(self, *_: object) -> None:
        self.in_flight -= 1


def crowds(url: str, rounds: int) -> Iterator[Figure]:
    """The same for tasks: two spend in one call, and the others are in line before the first ask leaves."""
    crowds = [asyncio.run(_crowd(url, _CROWD)) for _ in range(rounds)]
    note = f"the worst of {rounds} cold keys with {_CROWD:,} tokens each, {_CROWD:,} tasks"
    yield Figure("stampede of tasks: store calls", max(each.calls for each in crowds), at_most=3, note=note)
    yield Figure("stampede of tasks: asks under way at once", max(each.in_flight for each in crowds), at_most=1)
    yield Figure("stampede of tasks: refused while there were tokens", sum(each.refused for each in crowds), at_most=0)


async def _crowd(url: str, tasks: int) -> Crowded:
    """Let so many tasks meet at a key with as many tokens; a limiter for each crowd, as in the threaded stampede."""
    store, key = CountingStore.from_url(url, deadline=1.0), f"cold-{secrets.token_hex(4)}"
    async with aclosing(store), AsyncRateLimiter(store, Quota(tasks, tasks), deadline=1.0) as limiter:
        answers = [asyncio.create_task(limiter.try_acquire(key)) for _ in range(tasks)]
        for _ in range(2):  # all of them run up to where they wait, and no answer has come yet
            await asyncio.sleep(0)
        assert limiter.statistics().waiting > tasks - 9  # the first few spend at one key
        refused = sum(not admitted for admitted in await asyncio.gather(*answers))
        return Crowded(store.calls, refused, store.most)
