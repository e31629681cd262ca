"""Tasks that wait for a permit are kept as long as their event loop is open, and no longer, with what they hold."""

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from batchlimit import AsyncConcurrencyLimiter, Queue
from batchlimit.concurrency.laws import Fixed, Settable
from tests.aio.loop import run

MANY = 200
AT_ONCE = 64


def abandoned(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it on a loop that is then closed, though tasks wait there."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)
    loop.run_until_complete(main())
    loop.close()
    del loop
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_what_a_waiting_task_holds_is_free_after_its_loop_was_closed(timeout: float | None) -> None:
    """The waits of a loop were kept for ever by what they keep: the task, and the place that it had elsewhere."""
    held, waited = AsyncConcurrencyLimiter(Fixed(1)), AsyncConcurrencyLimiter(Fixed(1), queue=Queue(9, max_wait=None))
    permits = []

    async def both() -> None:
        async with held.acquire(), waited.acquire(timeout=timeout):
            raise AssertionError("there is no room")

    async def main() -> None:
        permits.append(await waited.acquire())
        task = asyncio.create_task(both())
        await asyncio.sleep(0)
        assert held.statistics().in_flight == 1
        assert not task.done()

    abandoned(main)
    assert held.statistics().in_flight == 0
    permits[0].success()
    assert waited.statistics().in_flight == 0


def test_places_of_tasks_that_were_to_be_woken_are_free_after_their_loop_was_closed() -> None:
    """They were due in the next turn of the loop, which never came."""
    law = Settable(1)
    limiter = AsyncConcurrencyLimiter(law, queue=Queue(MANY, max_wait=None))

    async def use() -> None:
        async with limiter.acquire():
            await asyncio.sleep(0)

    async def main() -> None:
        async with limiter.acquire():
            tasks = [asyncio.create_task(use()) for _ in range(MANY)]
            await asyncio.sleep(0)
            for limit in range(2, MANY):
                law.set_limit(limit)
            assert limiter.statistics().in_flight > AT_ONCE
        assert not any(task.done() for task in tasks)

    abandoned(main)
    assert limiter.statistics().in_flight == 0


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_task_to_which_nobody_refers_is_kept_while_it_waits(timeout: float | None) -> None:
    """The event loop itself keeps no task, and a queue keeps none of a loop that was closed."""
    limiter, ended = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(MANY, max_wait=None)), []

    async def use() -> None:
        async with limiter.acquire(timeout=timeout):
            ended.append(1)

    async def main() -> None:
        async with limiter.acquire():
            asyncio.ensure_future(use())  # noqa: RUF006  that is it
            await asyncio.sleep(0)
            gc.collect()
        await asyncio.sleep(0.01)
        assert ended

    run(main)
