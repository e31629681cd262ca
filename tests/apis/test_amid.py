"""A signal handler that calls the limiter during a call of its thread, wherever one can: it is answered, or raises."""

import asyncio
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import batchlimit
from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.base.blocking import AMID
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore
from tests.aio.loop import run, virtual_loop
from tests.sync.stage import DEADLINE, KEY, Clock, Stage, start

HERE = str(Path(batchlimit.__file__).parent)
BURST = 20
QUOTA = f"0.001/s burst {BURST}"
NAMES = ["a token", "three", "another key's", "now", "figures", "a refund of none", "the end"]


class Amid:
    """Calls a handler once, at the nth place of the package at which signals are handled: after any call."""

    def __init__(self, n: int, handler: Callable[[], object]) -> None:
        self._left, self._handler = n, handler

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(HERE) and self._left > 0:
            self._left -= 1
            if self._left == 0:
                self._handle()

    def _handle(self) -> None:
        try:
            self._handler()
        except RuntimeError as error:
            if str(error) != AMID:
                raise

    def during(self, call: Callable[[], object]) -> bool:
        """Whether the handler was called."""
        sys.setprofile(self)
        try:
            call()
        finally:
            sys.setprofile(None)
        return self._left <= 0


def threaded(n: int, name: str, keep: list[Any]) -> bool:
    """Play the story with a handler at its nth place; whether there is one."""
    clock = Clock()
    limiter = RateLimiter(MemoryStore(clock), QUOTA, sizer=FixedBatch(5), clock=clock)
    keep.append(limiter)
    spent: list[int] = []

    def spend(cost: int) -> None:
        if limiter.try_acquire(KEY, cost):
            spent.append(cost)

    handlers: dict[str, Callable[[], object]] = {
        "a token": lambda: spend(1),
        "three": lambda: spend(3),
        "another key's": lambda: limiter.try_acquire("another", 2),
        "now": lambda: limiter.decide("another"),
        "figures": limiter.statistics,
        "a refund of none": lambda: limiter.refund(KEY, 0),
        "the end": limiter.close,
    }

    def story() -> None:
        try:
            for cost in (1, 2, 3, 1):
                spend(cost)
            limiter.refund(KEY, 2)
            spent.append(-2)
            clock.pass_by(0.3)
            spend(2)
            limiter.acquire(KEY, 1)
            spent.append(1)
        except batchlimit.LimiterClosed:
            assert name == "the end"

    amid = Amid(n, handlers[name])
    found = amid.during(story)
    if name != "the end":
        spent.extend(1 for _ in itertools.takewhile(limiter.try_acquire, itertools.repeat(KEY)))
        assert sum(spent) <= BURST, f"minted at place {n}"
        assert limiter.statistics().waiting == 0
    limiter.close()
    return found


@pytest.mark.parametrize(("place", "name"), list(enumerate(NAMES)))
def test_a_handler_amid_a_call_of_its_thread_mints_nothing(place: int, name: str, without_refresher: None) -> None:
    """It waited for ever for a lock that its own thread had, or for the answer that its own thread was to fetch."""
    kept: list[Any] = []

    def all_places() -> int:
        places = itertools.count(1 + place, len(NAMES))  # all of them take a minute
        return sum(1 for _ in itertools.takewhile(lambda n: threaded(n, name, kept), places))

    assert start(all_places).result(DEADLINE) > 50


async def awaited(n: int, cost: int) -> bool:
    loop = virtual_loop()
    limiter = AsyncRateLimiter(MemoryStore(loop.time), QUOTA, sizer=FixedBatch(5), clock=loop.time)
    spent: list[int] = []

    def handle() -> None:
        answer = limiter.try_acquire(KEY, cost)
        if isinstance(answer, asyncio.Future):
            if answer.result():
                spent.append(cost)
        else:
            answer.close()

    amid = Amid(n, handle)

    async def spend(cost: int) -> None:
        if await limiter.try_acquire(KEY, cost):
            spent.append(cost)

    sys.setprofile(amid)
    try:
        await asyncio.gather(*(spend(cost) for cost in (1, 2, 3, 1)))
        await limiter.refund(KEY, 2)
        spent.append(-2)
        await asyncio.sleep(0.3)
        await spend(2)
    finally:
        sys.setprofile(None)
    while await limiter.try_acquire(KEY):
        spent.append(1)
    assert sum(spent) <= BURST, f"minted at place {n}"
    await limiter.close()
    return amid._left <= 0


@pytest.mark.parametrize("cost", [1, 3])
def test_a_handler_amid_a_loop_is_answered_and_mints_nothing(cost: int) -> None:
    for n in itertools.count(cost, 10):
        if not run(lambda n=n: awaited(n, cost)):  # type: ignore[misc]
            break
    assert n > 100


def test_a_handler_at_a_key_whose_answer_its_own_thread_fetches_raises(clock: Clock, without_refresher: None) -> None:
    """And at other keys it is served."""
    stage, seen = Stage(), []
    limiter = RateLimiter(stage, QUOTA, sizer=FixedBatch(5), clock=clock)

    def handle() -> None:
        stage.before = lambda: None
        with pytest.raises(RuntimeError, match="during another one of the same thread"):
            limiter.acquire(KEY)
        seen.append(limiter.try_acquire("another"))

    stage.before = handle
    assert start(lambda: limiter.try_acquire(KEY)).result(DEADLINE)
    assert seen == [True]
    assert sum(limiter.try_acquire(KEY) for _ in range(50)) == BURST - 1
    limiter.close()
