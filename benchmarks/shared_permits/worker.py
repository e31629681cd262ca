"""One process of callers that hold permits for a while, again and again, and log each hold.

    python -m benchmarks.shared_permits.worker '{"url": ..., "kind": "ours", ...}'

It says when it is ready, and reads until when it is to work (ns of the monotonic clock).
"""

import asyncio
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchlimit import BatchLimitError
from batchlimit.shared import AsyncSharedConcurrencyLimiter, Shared, SharedConcurrencyLimiter, held_slots
from benchmarks.shared_permits.log import Log
from benchmarks.shared_permits.rivals import Never, blpop, lock, zset

_now = time.monotonic_ns
_STALL = 50_000_000
"""A worker that looks at the clock so late (ns) was stopped, and did no work meanwhile."""
_PAUSE = 0.01
"""Seconds until a caller that was refused asks again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the callers of a process do."""

    url: str
    log: str
    kind: str = "ours"
    limit: int = 4
    lease: float = 10.0
    callers: int = 8
    hold: float = 0.01
    until: int = 0
    on_failure: Any = "closed"
    sleep: float = 0.01
    look: float = 60.0
    """Seconds between two looks of a holder whether its permit is lost."""
    weight: int = 1
    own: int = 1
    """Permits of each process, for a semaphore of its own."""
    buffered: bool = False
    """Whether holds are written many at a time."""
    used: float = held_slots.USED
    """The part of a lease that is used; more than 1 breaks the promise, for an audit that has to fail."""


class Diary:
    """Logs the holds of one process."""

    def __init__(self, plan: Plan) -> None:
        self._log, self._numbers = Log(Path(plan.log), plan.buffered), itertools.count()

    def begin(self, asked: int, permit: Any) -> "Entry":
        """Note that a caller that began to ask then got a permit."""
        number, now = next(self._numbers), _now()
        self._log.start(number, now, permit.token, now - asked)
        return Entry(self._log, number, now, permit)

    def close(self) -> None:
        """Write down what is left."""
        self._log.close()


class Entry:
    """One hold: its holder looks now and then whether it may still work."""

    def __init__(self, log: Log, number: int, now: int, permit: Any) -> None:
        self._log, self._number, self._permit = log, number, permit
        self._start = self._seen = now

    def goes_on(self) -> bool:
        """Whether the permit is still held."""
        now = _now()
        if self._permit.lost:
            return False
        self._seen = now
        return True

    def end(self) -> None:
        """Note the end: now, or when it was last seen not to be lost, if the process stood still since."""
        now, lost = _now(), self._permit.lost
        stood_still = self._seen == self._start or now - self._seen > _STALL
        self._log.end(self._number, self._seen if lost and stood_still else now)


def threads(plan: Plan, enter: Callable[[], AbstractContextManager[Any]]) -> None:
    """Have threads enter and hold until the time of the plan."""
    diary = Diary(plan)

    def work() -> None:
        asked = _now()
        while _now() < plan.until:
            try:
                with enter() as permit:
                    entry = diary.begin(asked, permit)
                    _hold(entry, plan)
                    entry.end()
            except BatchLimitError:
                time.sleep(_PAUSE)
            else:
                asked = _now()

    all_ = [threading.Thread(target=work) for _ in range(plan.callers)]
    for each in all_:
        each.start()
    for each in all_:
        each.join()
    diary.close()


def _hold(entry: Entry, plan: Plan) -> None:
    until = _now() + int(plan.hold * 1e9)
    while entry.goes_on():
        if (rest := (until - _now()) / 1e9) <= 0:
            return
        time.sleep(min(plan.look, rest))


async def _hold_awaited(entry: Entry, plan: Plan) -> None:
    until = _now() + int(plan.hold * 1e9)
    while entry.goes_on():
        if (rest := (until - _now()) / 1e9) <= 0:
            return
        await asyncio.sleep(min(plan.look, rest))


async def tasks(plan: Plan) -> int:
    """Have tasks enter and hold; return how often the store was asked."""
    shared = {"key": Shared(plan.limit, lease=plan.lease)}
    async with AsyncSharedConcurrencyLimiter.from_url(
        plan.url, shared, on_failure=plan.on_failure, weight=plan.weight
    ) as limiter:
        await _tasks(plan, lambda: limiter.acquire("key", timeout=5.0))
        return limiter.statistics().asks


async def tasks_without_limit(plan: Plan) -> int:
    """Have tasks hold what nobody counts: as many as there are callers."""
    await _tasks(plan, lambda: nullcontext(Never))
    return 0


async def tasks_by_semaphore(plan: Plan) -> int:
    """Have tasks wait for a semaphore of asyncio, which no other process knows of."""
    semaphore = Semaphore(plan.own)
    await _tasks(plan, lambda: semaphore)
    return 0


class Semaphore:
    """A semaphore of asyncio for which callers wait for 5 s at most, as for ours."""

    def __init__(self, limit: int) -> None:
        self._semaphore = asyncio.Semaphore(limit)

    async def __aenter__(self) -> type[Never]:
        async with asyncio.timeout(5.0):
            await self._semaphore.acquire()
        return Never

    async def __aexit__(self, *_error: object) -> None:
        self._semaphore.release()


async def _tasks(plan: Plan, enter: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
    diary = Diary(plan)

    async def work() -> None:
        asked = _now()
        while _now() < plan.until:
            try:
                async with enter() as permit:
                    entry = diary.begin(asked, permit)
                    try:
                        await _hold_awaited(entry, plan)
                    finally:
                        entry.end()
            except BatchLimitError:
                await asyncio.sleep(_PAUSE)
            else:
                asked = _now()

    await asyncio.gather(*(work() for _ in range(plan.callers)))
    diary.close()


def ours(plan: Plan) -> int:
    shared = {"key": Shared(plan.limit, lease=plan.lease)}
    with SharedConcurrencyLimiter.from_url(plan.url, shared, on_failure=plan.on_failure, weight=plan.weight) as limiter:
        threads(plan, lambda: limiter.acquire("key", timeout=5.0))
        return limiter.statistics().asks


def others(make: Callable[[Plan], Callable[[], AbstractContextManager[Any]]]) -> Callable[[Plan], int]:
    """Return what runs the plan by another semaphore."""

    def work(plan: Plan) -> int:
        threads(plan, make(plan))
        return 0

    return work


KINDS: dict[str, Callable[[Plan], int]] = {
    "ours": ours,
    "ours, tasks": lambda plan: asyncio.run(tasks(plan)),
    "lock": others(lambda plan: lock(plan.url, plan.sleep)),
    "zset": others(lambda plan: zset(plan.url, plan.limit, plan.sleep)),
    "blpop": others(lambda plan: blpop(plan.url, plan.limit)),
    "none, tasks": lambda plan: asyncio.run(tasks_without_limit(plan)),
    "semaphore, tasks": lambda plan: asyncio.run(tasks_by_semaphore(plan)),
    "none": others(lambda plan: lambda: nullcontext(Never)),
}


def main() -> None:
    print("ready", flush=True)  # importing takes seconds on a busy machine
    plan = Plan(**json.loads(sys.argv[1]), until=int(sys.stdin.readline()))
    held_slots.USED = plan.used
    before = time.process_time()
    asks = KINDS[plan.kind](plan)
    print(json.dumps({"asks": asks, "processor": time.process_time() - before}))


if __name__ == "__main__":
    main()
