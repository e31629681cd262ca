"""Tasks at a concurrency limiter: of several loops, cancelled, shed, and whatever asyncio adds to what threads do."""

import asyncio
import contextlib
import threading

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, Queue
from batchlimit.concurrency import AsyncPermit, Shedding
from batchlimit.concurrency.laws import Fixed
from batchlimit.concurrency.shedding import Shedder
from tests.sync.stage import DEADLINE, start, until


async def yields(times: int = 3) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_a_permit_is_awaited_or_the_context_of_a_block() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(9))
    async with limiter.acquire() as first:
        assert isinstance(first, AsyncPermit)
    second = await limiter.acquire()
    with second:
        pass
    async with await limiter.acquire() as third:
        third.drop()
    (await asyncio.wait_for(limiter.acquire(), 1)).success()
    seen = limiter.statistics()
    assert (seen.succeeded, seen.dropped, seen.in_flight) == (3, 1, 0)


async def test_who_never_awaits_never_enters() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(1))
    permit = limiter.acquire()
    assert limiter.statistics().in_flight == 0
    with pytest.raises(RuntimeError, match="was not awaited: write `async with`"), permit:
        pass
    assert limiter.statistics().admitted == 0


async def test_a_permit_is_entered_with_once() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(9))
    permit = await limiter.acquire()
    with pytest.raises(RuntimeError, match="was awaited before"):
        await permit
    permit.success()
    with pytest.raises(RuntimeError, match="was completed before"):
        async with permit:
            pass


async def test_nobody_completes_what_was_not_entered_with() -> None:
    """A forgotten `await` would otherwise mean no limit, and no complaint."""
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(5, max_wait=None))
    with pytest.raises(RuntimeError, match="nobody entered it; was it awaited"):
        limiter.acquire().success()
    holder = await limiter.acquire()
    permit = limiter.acquire()

    async def enter() -> None:
        async with permit:
            pass

    tasks = [asyncio.create_task(enter()) for _ in range(2)]
    await yields()
    with pytest.raises(RuntimeError, match="waited for by another task"):
        await tasks[1]
    holder.success()
    await tasks[0]
    assert limiter.statistics().in_flight == 0


@pytest.mark.parametrize("steps", range(6))
async def test_cancelled_at_each_step_nothing_is_lost(steps: int) -> None:
    """The place comes and the cancellation comes, so many steps of the loop apart."""
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(9, max_wait=None))
    holder = await limiter.acquire()

    async def call() -> None:
        async with limiter.acquire():
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(call()) for _ in range(2)]
    await yields()
    holder.success()
    await yields(steps)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    seen = limiter.statistics()
    assert (seen.in_flight, seen.waiting, seen.succeeded) == (0, 0, 2)


async def test_a_timeout_within_the_block_is_a_drop_and_a_cancellation_is_not() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(9))
    with pytest.raises(TimeoutError):
        async with limiter.acquire(), asyncio.timeout(1):
            await asyncio.sleep(2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), limiter.acquire():
            await asyncio.sleep(2)
    assert (limiter.statistics().dropped, limiter.statistics().ignored) == (1, 1)


# Several loops


def test_a_task_is_served_by_a_thread_and_by_another_loop() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(9, max_wait=None))

    async def enter() -> AsyncPermit:
        return await limiter.acquire()

    first = asyncio.run(enter())
    waiting = start(lambda: asyncio.run(enter()))
    until(lambda: limiter.statistics().waiting == 1)
    first.success()
    second = waiting.result(DEADLINE)
    other = threading.Thread(target=second.success)
    other.start()
    other.join()
    assert (limiter.statistics().succeeded, limiter.statistics().in_flight) == (2, 0)


def test_whose_loop_is_closed_passes_the_place_on() -> None:
    """And does so once: its task is destroyed later, and finds itself served neither then nor before."""
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(9, max_wait=None))

    async def enter() -> AsyncPermit:
        return await limiter.acquire()

    holder = asyncio.run(enter())
    dead = asyncio.new_event_loop()
    waits = enter()
    task = dead.create_task(waits)
    dead.run_until_complete(yields())
    assert limiter.statistics().waiting == 1
    dead.close()
    waiting = start(lambda: asyncio.run(enter()))
    until(lambda: limiter.statistics().waiting == 2)
    holder.success()
    last = waiting.result(DEADLINE)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    with contextlib.suppress(RuntimeError):  # its timer cannot be cancelled on a loop that is closed
        waits.close()
    assert limiter.statistics().in_flight == 1
    last.success()


# Shedding


def shed_all(limiter: AsyncConcurrencyLimiter) -> None:
    Shedder(Shedding(after=1, share=1)).end_period(["memory"], limiter._locked_gate)


async def in_block(limiter: AsyncConcurrencyLimiter, sheddable: bool = True) -> asyncio.Task[None]:
    """A task in a block for a second."""

    async def call() -> None:
        async with limiter.acquire(sheddable=sheddable):
            await asyncio.sleep(1)

    task = asyncio.create_task(call())
    await yields()
    return task


async def test_a_task_that_is_shed_ends_in_a_refusal() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(9))
    tasks = [await in_block(limiter, sheddable) for sheddable in (True, False)]
    shed_all(limiter)
    with pytest.raises(ConcurrencyLimited, match=r"\(shed\)"):
        await tasks[0]
    await tasks[1]
    seen = limiter.statistics()
    assert (seen.shed, seen.ignored, seen.succeeded, seen.in_flight) == (1, 1, 1, 0)
    assert tasks[0].cancelling() == 0


async def test_who_is_cancelled_too_is_cancelled() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(9))
    task = await in_block(limiter)
    shed_all(limiter)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert limiter.statistics().in_flight == 0


async def test_a_block_that_ends_before_it_hears_of_it_is_served() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(9))

    async def call() -> None:
        async with limiter.acquire(sheddable=True):
            shed_all(limiter)
        await asyncio.sleep(1)

    await asyncio.create_task(call())
    assert limiter.statistics().succeeded == 1


def test_a_task_is_shed_from_another_thread() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(9))

    async def call() -> None:
        async with limiter.acquire(sheddable=True):
            await asyncio.Event().wait()

    ended = start(lambda: asyncio.run(call()))
    until(lambda: limiter.statistics().in_flight == 1)
    until(lambda: len(limiter._locked_gate.sheddable) == 1)
    shed_all(limiter)
    with pytest.raises(ConcurrencyLimited, match=r"\(shed\)"):
        ended.result(DEADLINE)


async def test_a_block_that_was_handed_on_cancels_nobody_else() -> None:
    """It was entered by one task and is left by another: what was cancelled stays so, and the other goes on."""
    limiter = AsyncConcurrencyLimiter(Fixed(9))
    permit = limiter.acquire(sheddable=True)

    async def enter() -> None:
        await permit.__aenter__()
        await asyncio.sleep(9)

    task = asyncio.create_task(enter())
    await yields()
    shed_all(limiter)
    await yields()
    await permit.__aexit__(None, None, None)
    assert task.cancelling() == 1
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (limiter.statistics().succeeded, limiter.statistics().in_flight) == (1, 0)


def test_a_waiter_of_the_parent_is_nobody_in_a_child() -> None:
    """A task that waited is destroyed in a forked child: it takes nobody's place there."""
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(5, max_wait=None))
    loop = asyncio.new_event_loop()

    async def enter() -> AsyncPermit:
        return await limiter.acquire()

    holder = loop.run_until_complete(enter())
    waits = enter()
    task = loop.create_task(waits)
    loop.run_until_complete(yields())
    limiter._locked_gate.after_fork()  # what a child does first
    waits.close()
    seen = limiter.statistics()
    assert (seen.waiting, seen.in_flight) == (0, 0)
    holder.success()
    assert limiter.statistics().in_flight == 0
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()


async def test_what_is_awaited_outside_of_a_block_is_not_shed() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(9))
    permit = await limiter.acquire(sheddable=True)
    shed_all(limiter)
    await yields()
    permit.success()
    assert limiter.statistics().shed == 0
