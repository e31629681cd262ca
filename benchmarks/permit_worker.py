"""One process of callers that hold permits for a while, again and again, and log each hold.

    python -m benchmarks.permit_worker '{"url": ..., "kind": "ours", ...}'

It says when it is ready, and reads until when it is to work (ns of the monotonic clock).
"""

import asyncio
import itertools
import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from batchlimit import BatchLimitError
from batchlimit.shared import AsyncSharedConcurrencyLimiter, Shared, SharedConcurrencyLimiter
from benchmarks.permit_log import Log

_now = time.monotonic_ns
_STEP = 0.01
"""Seconds between two looks whether a permit is lost."""


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


class Never:
    """The permit of a semaphore that does not know what it lost."""

    token, lost = 0, False


def threads(plan: Plan, enter: Callable[[], AbstractContextManager[Any]]) -> None:
    """Have threads enter and hold until the time of the plan."""
    log, numbers = Log(Path(plan.log)), itertools.count()

    def work() -> None:
        while _now() < plan.until:
            with suppress(BatchLimitError), enter() as permit:
                number, start = next(numbers), _now()
                log.start(number, start, permit.token)
                log.end(number, _hold(permit, start, plan.hold))

    all_ = [threading.Thread(target=work) for _ in range(plan.callers)]
    for each in all_:
        each.start()
    for each in all_:
        each.join()


def _hold(permit: Any, start: int, seconds: float) -> int:
    """Return when the permit was last seen not to be lost."""
    seen, until = start, start + int(seconds * 1e9)
    while (now := _now()) < until:
        if permit.lost:
            return seen
        seen = now
        time.sleep(min(_STEP, (until - now) / 1e9))
    now = _now()
    return seen if permit.lost else now


async def tasks(plan: Plan) -> int:
    """Have tasks enter and hold; return how often the store was asked."""
    log, numbers = Log(Path(plan.log)), itertools.count()
    shared = {"key": Shared(plan.limit, lease=plan.lease)}
    async with AsyncSharedConcurrencyLimiter.from_url(plan.url, shared, on_failure=plan.on_failure) as limiter:

        async def work() -> None:
            while _now() < plan.until:
                with suppress(BatchLimitError):
                    async with limiter.acquire("key", timeout=5.0) as permit:
                        number = next(numbers)
                        log.start(number, _now(), permit.token)
                        await asyncio.sleep(plan.hold)
                        log.end(number, _now())

        await asyncio.gather(*(work() for _ in range(plan.callers)))
        return limiter.statistics().asks


def ours(plan: Plan) -> int:
    shared = {"key": Shared(plan.limit, lease=plan.lease)}
    with SharedConcurrencyLimiter.from_url(plan.url, shared, on_failure=plan.on_failure) as limiter:
        threads(plan, lambda: limiter.acquire("key", timeout=5.0))
        return limiter.statistics().asks


def lock(plan: Plan) -> int:
    """redis-py's Lock, which polls."""
    client = redis.Redis.from_url(plan.url)

    @contextmanager
    def enter() -> Iterator[Any]:
        with client.lock("key", timeout=10.0, sleep=plan.sleep):
            yield Never

    threads(plan, enter)
    return 0


def zset(plan: Plan) -> int:
    """A semaphore as it is found in many books: members of a sorted set by the caller's clock, and polling."""
    client = redis.Redis.from_url(plan.url)

    @contextmanager
    def enter() -> Iterator[Any]:
        name = uuid.uuid4().hex
        while True:
            now = time.time()
            pipe = client.pipeline()
            pipe.zremrangebyscore("semaphore", 0, now - 10.0)
            pipe.zadd("semaphore", {name: now})
            pipe.zrank("semaphore", name)
            if pipe.execute()[-1] < plan.limit:
                break
            client.zrem("semaphore", name)
            time.sleep(plan.sleep)
        try:
            yield Never
        finally:
            client.zrem("semaphore", name)

    threads(plan, enter)
    return 0


def none(plan: Plan) -> int:
    """No limit at all: what an audit has to notice."""
    threads(plan, lambda: nullcontext(Never))
    return 0


KINDS: dict[str, Callable[[Plan], int]] = {
    "ours": ours,
    "ours, tasks": lambda plan: asyncio.run(tasks(plan)),
    "lock": lock,
    "zset": zset,
    "none": none,
}

if __name__ == "__main__":
    print("ready", flush=True)  # importing takes seconds on a busy machine
    plan = Plan(**json.loads(sys.argv[1]), until=int(sys.stdin.readline()))
    print(json.dumps({"asks": KINDS[plan.kind](plan)}))
