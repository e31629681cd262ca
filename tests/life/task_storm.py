"""The kinds of limiters for tasks, for a storm of signals whose handler raises in the event loop."""

import asyncio
import contextlib
import gc
import random
from asyncio import events
from collections.abc import Awaitable, Callable

from batchlimit import AsyncConcurrencyLimiter, AsyncRateLimiter, BatchLimitError, Queue
from batchlimit.admission import AsyncAdmission
from batchlimit.batching import FixedBatch
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed
from batchlimit.laws import Fixed
from batchlimit.shared import AsyncSharedConcurrencyLimiter

KEYS = ["a", "b", "c"]
QUOTA = "100000/s burst 1000"
TASKS = 3
"""Tasks that contend at a time."""
PAUSE = 0.002
"""Seconds between two bursts of signals at the most: so long as some turns of the loop."""
PATIENCE = 1.0
"""Seconds after which tasks are given up that take microseconds."""

Kind = tuple[Callable[[], object], Callable[[], bool]]


class Loops:
    """Runs tasks on an event loop, and on another one where signals have broken it."""

    def __init__(self, use: Callable[[], Awaitable[object]]) -> None:
        self._use = use
        self._loops, self._is_clean, self._is_tidying = [asyncio.new_event_loop()], True, False

    def run(self) -> None:
        """Run some tasks to their end."""
        if not self._is_clean:
            self.tidy()
        self._is_clean = self._is_tidying = False
        with contextlib.suppress(TimeoutError, BatchLimitError):  # a loop itself may have lost what was to wake a task
            self._loops[-1].run_until_complete(asyncio.wait_for(self._all(), PATIENCE))
            self._is_clean = True

    async def _all(self) -> None:
        await asyncio.gather(*(self._use() for _ in range(TASKS)))

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the loop, unless an interrupted `tidy` left this behind and tasks run by now."""
        if self._is_tidying:
            loop.stop()

    def tidy(self) -> None:
        """End what interrupted runs left behind; where that does not help, go on with another loop."""
        events._set_running_loop(None)
        loop = self._loops[-1]
        loop._thread_id = None  # type: ignore[attr-defined]
        self._is_tidying = True
        for _ in range(3):
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.call_soon(self._stop, loop)
            again = loop.call_later(PATIENCE, self._stop, loop)  # the loop may lose the first one
            loop.run_forever()
            again.cancel()
        if asyncio.all_tasks(loop):
            self._loops.append(asyncio.new_event_loop())
        while len(self._loops) > 1:
            try:
                self._loops[0].close()
            except Exception:  # noqa: BLE001  it was interrupted in this, and cannot do it again
                self._loops[0]._closed = True  # type: ignore[attr-defined]
            del self._loops[0]


def _kind(use: Callable[[], Awaitable[object]], is_at_rest: Callable[[], bool]) -> Kind:
    loops = Loops(use)

    def rests() -> bool:
        loops.tidy()
        loops.run()
        gc.collect()
        return is_at_rest()

    return loops.run, rests


def tasks() -> Kind:
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(9, None))

    async def use() -> None:
        async with limiter.acquire():
            await asyncio.sleep(0)

    return _kind(use, lambda: not limiter.statistics().in_flight)


def keyed_tasks() -> Kind:
    limiter = AsyncKeyedConcurrencyLimiter({"*": Keyed(1, queue=Queue(9, None))})

    async def use() -> None:
        async with limiter.acquire(random.choice(KEYS)), limiter.acquire_all(["d", "e"]):
            await asyncio.sleep(0)

    return _kind(use, lambda: not limiter.statistics().patterns["*"].in_flight)


def shared_tasks() -> Kind:
    limiter = AsyncSharedConcurrencyLimiter.from_url("memory://", {"*": 1})

    async def use() -> None:
        async with limiter.acquire("a"):
            await asyncio.sleep(0)

    return _kind(use, lambda: not any(each.in_flight for each in limiter.statistics().keys.values()))


def rate_tasks() -> Kind:
    limiter = AsyncRateLimiter.from_url("memory://", QUOTA, idle_after=1.0)

    async def use() -> None:
        await limiter.acquire("a", 3)

    return _kind(use, lambda: not limiter.statistics().waiting)


def spend_tasks() -> Kind:
    limiter = AsyncRateLimiter.from_url("memory://", QUOTA, sizer=FixedBatch(1), idle_after=1.0)

    async def use() -> None:
        await limiter.acquire(f"{random.randrange(10_000)}", 3)

    return _kind(use, lambda: not limiter.statistics().waiting)


def admission_tasks() -> Kind:
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(9, None))
    rates = AsyncRateLimiter.from_url("memory://", QUOTA, idle_after=1.0)
    both = AsyncAdmission(rates, limiter)

    async def use() -> None:
        async with both.admit("a"):
            await asyncio.sleep(0)

    return _kind(use, lambda: not limiter.statistics().in_flight)


KINDS = {each.__name__: each for each in (tasks, keyed_tasks, shared_tasks, rate_tasks, spend_tasks, admission_tasks)}
