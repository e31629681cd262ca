"""The loop stays responsive however many callers wake at once: in a turn of it a few of them go on."""

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, LimiterClosed, Quota, RateLimited
from batchlimit.base.waking import AT_ONCE, HEARTBEAT, RoundRobin
from batchlimit.errors import BatchLimitError, BucketUnavailable
from batchlimit.stores import MemoryStore
from tests.aio.loop import VirtualLoop, virtual_loop
from tests.aio.stage import KEY, Gate, Stage, in_line, limiter_on

CROWD = 1000
LARGE = Quota(0.001, CROWD)


class Crowd:
    """Tasks in line for one token each; notes who went on in which turn of the loop, and with what error."""

    def __init__(self, limiter: AsyncRateLimiter, timeout: float | None = None) -> None:
        self._limiter, self._timeout = limiter, timeout
        self.woken: list[int] = []
        self.errors: list[type[BaseException]] = []
        self.turns: Counter[int] = Counter()
        self.tasks = [asyncio.create_task(self._wait(i)) for i in range(CROWD)]

    async def _wait(self, i: int) -> None:
        try:
            await self._limiter.acquire(KEY, timeout=self._timeout)
        except BatchLimitError as error:
            self.errors.append(type(error))
        self.woken.append(i)
        self.turns[virtual_loop().turns] += 1

    async def ended(self) -> None:
        """Return when all have gone on; none may before their event."""
        await asyncio.wait(self.tasks)
        assert sum(self.turns.values()) == CROWD


Event = Callable[[Stage, AsyncRateLimiter], Awaitable[Any]]


async def refund(_: Stage, limiter: AsyncRateLimiter) -> None:
    await limiter.refund(KEY, CROWD)


async def close(_: Stage, limiter: AsyncRateLimiter) -> None:
    await limiter.close()


async def raise_error(error: Exception) -> None:
    raise error


async def fail(stage: Stage, limiter: AsyncRateLimiter) -> None:
    stage.before = lambda: raise_error(BucketUnavailable("the key holds a string"))
    await limiter.refund(KEY)  # the first of them asks for it


@pytest.mark.parametrize(
    ("event", "timeout", "error", "of_them"),
    [
        (refund, None, None, 0),
        (refund, 1e9, None, 0),
        (close, None, LimiterClosed, CROWD),
        (fail, None, BucketUnavailable, CROWD),
    ],
    ids=["tokens come", "tokens come in time", "the limiter closes", "the store fails"],
)
async def test_whatever_ends_the_wait_of_a_crowd_wakes_a_few_in_a_turn_in_order_of_arrival(
    event: Event, timeout: float | None, error: type[Exception] | None, of_them: int
) -> None:
    stage = Stage()
    limiter = limiter_on(stage, LARGE)
    await limiter.acquire(KEY, CROWD)
    crowd = Crowd(limiter, timeout)
    await in_line(limiter, CROWD)
    await event(stage, limiter)
    await crowd.ended()
    assert crowd.woken == list(range(CROWD))
    assert max(crowd.turns.values()) <= AT_ONCE
    assert crowd.errors == [error] * of_them


async def test_an_answer_that_serves_a_crowd_wakes_a_few_in_a_turn_in_order_of_arrival() -> None:
    stage = Stage()
    gate = stage.before = Gate()
    limiter = limiter_on(stage, LARGE, deadline=10.0)
    crowd = Crowd(limiter)
    await in_line(limiter, CROWD)
    gate.open()
    await crowd.ended()
    assert crowd.woken == list(range(CROWD))
    assert max(crowd.turns.values()) <= AT_ONCE


async def test_a_crowd_whose_time_is_up_at_one_instant_is_looked_after_a_few_in_a_turn() -> None:
    stage = Stage()
    stage.before = Gate()
    limiter = limiter_on(stage, LARGE, deadline=10.0)
    crowd = Crowd(limiter, timeout=0.5)
    begun = virtual_loop().now
    await in_line(limiter, CROWD)
    await crowd.ended()
    assert crowd.errors == [RateLimited] * CROWD
    assert max(crowd.turns.values()) <= AT_ONCE
    assert virtual_loop().now == pytest.approx(begun + 0.5), "they take turns of the loop, and no time"


@pytest.mark.parametrize("after", [0, 1, 2, 5, 100])
async def test_who_is_cancelled_between_its_verdict_and_its_turn_leaves_its_token_to_the_next(after: int) -> None:
    """Every other one of a crowd is cancelled, so many turns after tokens came for half of the crowd."""
    limiter = limiter_on(Stage(), LARGE)
    await limiter.acquire(KEY, CROWD)
    crowd = Crowd(limiter)
    await in_line(limiter, CROWD)
    await limiter.refund(KEY, CROWD // 2)
    for _ in range(after):
        await asyncio.sleep(0)
    for task in crowd.tasks[::2]:
        task.cancel()
    while len(crowd.woken) < CROWD // 2:  # noqa: ASYNC110  it has no event for it
        await asyncio.sleep(0)
    assert max(crowd.turns.values()) <= AT_ONCE
    assert limiter.statistics().admitted == CROWD + CROWD // 2


async def test_two_keys_take_turns_together() -> None:
    """The callers that go on in one turn of the loop do not grow with the number of keys."""
    limiter = limiter_on(Stage(), LARGE)
    turns: Counter[int] = Counter()

    async def wait(key: str) -> None:
        await limiter.acquire(key)
        turns[virtual_loop().turns] += 1

    for key in ("one", "another"):
        await limiter.acquire(key, CROWD)
    tasks = [asyncio.create_task(wait(key)) for key in ("one", "another") for _ in range(AT_ONCE)]
    await in_line(limiter, len(tasks))
    await asyncio.gather(limiter.refund("one", AT_ONCE), limiter.refund("another", AT_ONCE))
    await asyncio.wait(tasks)
    assert max(turns.values()) <= AT_ONCE


def test_what_is_left_when_a_loop_is_closed_holds_up_nobody_on_the_next() -> None:
    first, second = VirtualLoop(), VirtualLoop()
    limiter = AsyncRateLimiter(MemoryStore(first.time), LARGE, clock=first.time)
    crowds: list[Crowd] = []

    async def begin() -> None:
        await limiter.acquire(KEY, CROWD)
        crowds.append(Crowd(limiter))
        await in_line(limiter, CROWD)
        await limiter.refund(KEY, CROWD)
        while not crowds[0].woken:  # noqa: ASYNC110  it has no event for it
            await asyncio.sleep(0)

    async def go_on() -> None:
        await limiter.acquire("another", CROWD)
        crowd = [asyncio.create_task(limiter.acquire("another")) for _ in range(2 * AT_ONCE)]
        await in_line(limiter, 2 * AT_ONCE)
        await limiter.refund("another", 2 * AT_ONCE)
        await asyncio.wait(crowd)
        await limiter.close()

    logging.disable()  # asyncio says of each task that it was destroyed
    try:
        first.run_until_complete(begin())
        first.close()
        assert 0 < len(crowds[0].woken) < CROWD
        second.run_until_complete(go_on())
        second.close()
        crowds.clear()
        gc.collect()
    finally:
        logging.disable(logging.NOTSET)


async def test_a_loop_that_forgot_a_turn_begins_one_with_what_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does where a signal handler raises just then: no task woke any more."""
    loop, done = virtual_loop(), Counter[str]()
    turns = RoundRobin(loop)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_soon", lambda *_, **__: None)
        for _ in range(AT_ONCE + 1):
            turns.do(lambda: done.update(["before"]))
    await asyncio.sleep(2 * HEARTBEAT)
    assert done["before"] == AT_ONCE
    turns.do(lambda: done.update(["after"]))
    assert done == Counter(before=AT_ONCE + 1, after=1)
