"""An event loop in which a signal handler raised may forget a callback: the key serves those who come later."""

import asyncio
import contextlib
from functools import partial

import pytest

from batchlimit import AsyncRateLimiter
from batchlimit.aio import key_entry
from tests.aio.stage import KEY, Gate, Stage, limiter_on

LATER = 100.0
"""Seconds: an answer takes no longer, not even with a connection that has to be made first."""


def forget(*_: object, **__: object) -> None:
    """What a loop does with a callback that it has forgotten."""


async def ignores_cancellation(gate: Gate) -> None:
    """What a store of a user's own may do: it ends when the gate is opened, and not before."""
    passing = asyncio.create_task(gate())
    while not passing.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(passing)


async def later_callers_are_served(limiter: AsyncRateLimiter) -> None:
    """The first one sees that a request is in flight, and the other one after a while that it still is."""
    asked = [asyncio.create_task(limiter.acquire(KEY))]
    await asyncio.sleep(LATER)
    asked.append(asyncio.create_task(limiter.acquire(KEY)))
    await asyncio.wait_for(asyncio.gather(*asked), LATER)


async def test_an_answer_of_which_nobody_hears_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key was dead for good."""
    stage = Stage()
    limiter = limiter_on(stage)
    with monkeypatch.context() as patch:
        patch.setattr(key_entry.KeyEntry, "_taken", forget)
        patch.setattr(key_entry.KeyEntry, "_hear", forget)
        lost = asyncio.create_task(limiter.acquire(KEY))
        await asyncio.sleep(1.0)
    assert len(stage.asks) == 1
    await later_callers_are_served(limiter)
    assert stage.asks[1].seq == stage.asks[0].seq
    await lost


async def test_a_return_of_tokens_of_which_nobody_hears_is_over_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    limiter = limiter_on(stage, idle_after=1000.0)
    assert await limiter.try_acquire(KEY, 10)
    await asyncio.sleep(LATER)  # its lease is over, so that what comes back is for the bucket
    with monkeypatch.context() as patch:
        patch.setattr(key_entry.KeyEntry, "_gave", forget)
        refund = asyncio.create_task(limiter.refund(KEY, 10))
        await asyncio.sleep(1.0)
        await refund
    assert len(stage.backs) == 1
    await later_callers_are_served(limiter)


async def test_a_return_that_ends_after_it_was_given_up_ends_no_other_request() -> None:
    """The ask that followed was forgotten: its tokens were lost, and another one was in flight beside it."""
    stage, back, ask = Stage(), Gate(), Gate()
    limiter = limiter_on(stage, idle_after=1000.0)
    assert await limiter.try_acquire(KEY, 10)
    await asyncio.sleep(LATER)
    stage.before_back = partial(ignores_cancellation, back)
    refund = asyncio.create_task(limiter.refund(KEY, 5))
    await back.await_someone()
    first = asyncio.create_task(limiter.acquire(KEY))
    await asyncio.sleep(LATER)
    stage.before = ask
    second = asyncio.create_task(limiter.acquire(KEY))
    await ask.await_someone()
    back.open()
    await refund
    ask.open()
    await asyncio.gather(first, second)
    assert stage.busiest == 1
