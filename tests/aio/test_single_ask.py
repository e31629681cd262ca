"""A call for a key that is not in use is settled by one ask, and by the rules of its reservoir if that is not all."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from batchlimit import LimiterClosed
from tests.aio.stage import KEY, limiter_on
from tests.aio.test_sender import Sender

pytestmark = pytest.mark.usefixtures("without_refresher")


async def test_it_leaves_nothing_in_memory_but_a_snapshot() -> None:
    stage = Sender()
    limiter = limiter_on(stage)
    assert [await limiter.try_acquire(f"key-{n}") for n in range(5)] == [True] * 5
    assert limiter._entries == {}
    seen = limiter.statistics()
    assert (seen.keys, seen.admitted, seen.calls, seen.held) == (5, 5, 5, 0)
    await limiter.close()
    assert stage.backs == []


async def test_one_key_of_several_at_once_is_settled_by_one_ask_too() -> None:
    limiter = limiter_on(Sender())
    assert [all((await limiter.decide_all({f"key-{n}": 1})).values()) for n in range(5)] == [True] * 5
    assert limiter._entries == {}
    await limiter.close()


async def test_who_comes_for_the_same_key_meanwhile_waits_for_its_answer() -> None:
    stage = Sender()
    limiter = limiter_on(stage)
    first, second = (asyncio.create_task(limiter.try_acquire(KEY)) for _ in range(2))
    await asyncio.sleep(0)
    assert limiter.statistics().waiting == 2
    assert len(stage.sent) == 1
    assert await first
    assert await second
    assert limiter.statistics().admitted == 2
    await limiter.close()


async def test_what_is_granted_to_a_caller_that_was_cancelled_is_for_others() -> None:
    stage = Sender()
    limiter = limiter_on(stage)
    caller = asyncio.create_task(limiter.try_acquire(KEY))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    await asyncio.sleep(0.02)
    seen = limiter.statistics()
    assert (seen.admitted, seen.held, seen.waiting) == (0, 1, 0)
    assert await limiter.try_acquire(KEY)
    assert len(stage.sent) == 1
    await limiter.close()


async def test_a_limiter_that_is_closed_meanwhile_fails_its_caller() -> None:
    stage = Sender()
    limiter = limiter_on(stage)
    caller = asyncio.create_task(limiter.acquire(KEY))
    await asyncio.sleep(0)
    await limiter.close()
    with pytest.raises(LimiterClosed):
        await caller


@pytest.mark.parametrize("is_first", [True, False], ids=["the first call", "a later call"])
async def test_a_call_that_is_nested_too_deep_leaves_its_key_to_others(is_first: bool) -> None:
    ends = set()
    for room in range(60):
        limiter = limiter_on(Sender())
        if not is_first:
            assert await limiter.try_acquire("another")
        try:
            await nested(sys.getrecursionlimit() - frames() - room, partial(limiter.try_acquire, KEY))
            ends.add("done")
        except RecursionError:
            ends.add("too deep")
        assert limiter.statistics().waiting == 0, f"with room for {room} calls"
        assert await limiter.try_acquire(KEY)
        await limiter.close()
    assert ends == {"done", "too deep"}


async def nested(calls: int, call: Callable[[], Awaitable[object]]) -> object:
    return await (call() if calls <= 0 else nested(calls - 1, call))


def frames() -> int:
    frame, count = inspect.currentframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count
