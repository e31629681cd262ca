"""Waiting for tokens in tasks: in order of arrival, until a deadline, and never for ever, whoever is cancelled."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimited, StoreUnavailable
from batchlimit.aio.waiting_task import WaitingTask
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore
from tests.aio.loop import run, virtual_loop
from tests.aio.stage import KEY, SLOW, TEN, Gate, Stage, in_line, limiter_on, nothing, stand_in_line
from tests.garbage import kept

# In order


async def test_a_thousand_tasks_on_a_cold_key_are_served_in_order_by_two_asks() -> None:
    stage = Stage()
    gate = stage.before = Gate()
    limiter = limiter_on(stage, Quota(SLOW, 1000))
    served: list[int] = []

    async def call(i: int) -> None:
        await limiter.acquire(KEY)
        served.append(i)

    tasks = [asyncio.create_task(call(i)) for i in range(1000)]
    await in_line(limiter, 1000)
    gate.open()
    await asyncio.gather(*tasks)
    assert served == list(range(1000))
    assert (len(stage.asks), stage.busiest) == (2, 1)
    assert not await limiter.try_acquire(KEY)


@pytest.mark.parametrize("burst", [1, 3, 20])
@pytest.mark.parametrize("is_connected", [False, True])
@pytest.mark.parametrize("later", [0, 15])
@pytest.mark.parametrize("of_several", [0, 5, 10], ids="{} of several keys".format)
async def test_who_acquire_one_new_key_are_served_as_they_came(
    burst: int, is_connected: bool, later: int, of_several: int
) -> None:
    """The first of them spend, until the key leases; those whose spends were in vain came before all others.

    So did all who came in the first turn of the event loop before those who came a turn `later`. A caller of several
    keys had joined last when its spend was in vain.
    """
    store, quotas = MemoryStore(virtual_loop().time), {KEY: Quota(50.0, burst), "*": Quota(1.0, 1)}
    async with AsyncRateLimiter(store, quotas, clock=virtual_loop().time) as one:
        if is_connected:
            await one.try_acquire("other")
        served = list[int]()

        async def acquire(number: int) -> None:
            if number >= 30 - later:
                await asyncio.sleep(0)
            await one.acquire_all({KEY: 1, f"{number}": 1} if number < of_several else {KEY: 1})
            served.append(number)

        await asyncio.gather(*map(acquire, sorted(range(30), key=lambda number: number % (30 - later))))
    assert served == list(range(30))


async def test_a_thousand_tasks_get_what_flows_in_one_ask_at_a_time() -> None:
    """The store is 50 ms away, half of the bucket's refill time: in order of arrival, with most of the rate used."""

    async def travel() -> None:
        await asyncio.sleep(0.025)

    stage = Stage()
    stage.before = stage.after = travel
    limiter = limiter_on(stage, "1000/s burst 100")
    served: list[int] = []

    async def call(i: int) -> None:
        await limiter.acquire(KEY)
        served.append(i)

    begun = virtual_loop().now
    await asyncio.gather(*(call(i) for i in range(1000)))
    assert served == list(range(1000))
    assert stage.busiest == 1
    assert 0.9 <= virtual_loop().now - begun < 2.0
    assert len(stage.asks) < 50


async def test_who_was_served_at_one_of_its_keys_waits_for_the_other_while_its_tokens_are_good() -> None:
    """Each key has a caller who takes every token. Beginning anew each time, it takes a second and a half."""
    limiter = AsyncRateLimiter(MemoryStore(virtual_loop().time), "20/s burst 5", clock=virtual_loop().time)

    async def take(key: str) -> None:
        while True:
            await limiter.acquire(key)

    busy = [asyncio.create_task(take(key)) for key in ("a", "b")]
    for _ in range(5):
        await asyncio.sleep(1.0)
        begun = virtual_loop().now
        await limiter.acquire_all({"a": 1, "b": 1})
        assert virtual_loop().now - begun < 0.5
    for each in busy:
        each.cancel()


async def test_who_waits_wakes_for_its_verdict_alone() -> None:
    """A thousand tasks in line are one timer, and no task runs before there is something for it."""
    limiter = limiter_on(Stage(), Quota(1.0, 10))
    await limiter.acquire(KEY, 10)
    line = [await stand_in_line(limiter) for _ in range(1000)]
    planned = [timer for timer in virtual_loop()._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    assert len(planned) <= 1, "one timer of ours; those that were cancelled may lie there a while"
    for each in line:
        each.cancel()
    await asyncio.gather(*line, return_exceptions=True)
    assert limiter.statistics().waiting == 0


# Until a deadline


async def test_a_deadline_that_can_be_met_is_waited_for() -> None:
    limiter = limiter_on(Stage(), "10/s burst 5")
    await limiter.acquire(KEY, 5)
    begun = virtual_loop().now
    await limiter.acquire(KEY, timeout=1.0)
    assert 0.1 <= virtual_loop().now - begun <= 1.0


async def test_each_deadline_is_kept_whatever_the_order() -> None:
    limiter = limiter_on(Stage(), Quota(0.5, 1))
    await limiter.acquire(KEY)
    late: dict[float, float] = {}

    async def call(timeout: float) -> None:
        begun = virtual_loop().now
        with pytest.raises(RateLimited):
            await limiter.acquire(KEY, timeout=timeout)
        late[timeout] = virtual_loop().now - begun

    blocker = await stand_in_line(limiter)
    await asyncio.gather(*(call(timeout) for timeout in (1.5, 0.5, 1.0, 0.1, 1.9)))
    assert all(waited <= timeout + 1e-6 for timeout, waited in late.items())
    await blocker


async def test_a_long_line_may_be_refused_one_after_the_other() -> None:
    """Each that is refused wakes the next, which is refused in turn: no reason for calls as deep as the line."""
    stage = Stage()
    stage.before = Gate()
    limiter = limiter_on(stage)
    line = [asyncio.create_task(limiter.acquire(KEY, timeout=0.5)) for _ in range(3000)]
    await in_line(limiter, 3000)
    await asyncio.sleep(1.0)
    assert all(isinstance(each.exception(), RateLimited) for each in line)
    assert limiter.statistics().waiting == 0


# When the store fails


async def test_one_late_answer_fails_no_caller_that_has_time() -> None:
    """The store pauses once, for twice the deadline, while 500 callers wait."""
    stage = Stage()
    limiter = limiter_on(stage, "1000/s burst 100", deadline=0.05)
    await limiter.acquire("another")
    callers = [asyncio.create_task(limiter.acquire(KEY, timeout=60)) for _ in range(500)]
    await in_line(limiter, 400)

    async def pause() -> None:
        stage.before = nothing
        await asyncio.sleep(0.1)

    stage.before = pause
    await asyncio.gather(*callers)
    found = limiter.statistics()
    assert (found.admitted, found.refused, found.failures) == (501, 0, 1)


async def test_a_caller_whose_time_ends_while_the_store_is_silent_hears_of_the_store() -> None:
    stage = Stage()
    limiter = limiter_on(stage, deadline=0.05)
    await limiter.acquire("another")
    stage.before = Gate()
    begun = virtual_loop().now
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        await limiter.acquire(KEY, timeout=0.08)
    assert 0.08 <= virtual_loop().now - begun <= 0.08 + 0.05, "the request that is under way may end first"


@pytest.mark.parametrize("later", [0.0, 0.3, 0.999, 1.0, 1.2, 1.5, 1.501, 2.3, 4.0])
@pytest.mark.parametrize("of_this_process", [True, False])
async def test_forty_that_are_cancelled_around_a_pause_leave_the_rate_to_others(
    later: float, of_this_process: bool
) -> None:
    store = MemoryStore(virtual_loop().time)
    limiter, other = (AsyncRateLimiter(store, "2/s burst 5", clock=virtual_loop().time) for _ in range(2))
    await limiter.acquire(KEY)
    await limiter.pause(KEY, 1.0)
    forty = [asyncio.ensure_future(limiter.acquire(KEY, timeout=60)) for _ in range(40)]
    await asyncio.sleep(later)
    for each in forty:
        each.cancel()
    await asyncio.wait(forty)
    begun = max(virtual_loop().now, 1001.0)
    for _ in range(10):
        await (limiter if of_this_process else other).acquire(KEY, timeout=60)
    assert virtual_loop().now - begun <= 10 / 2 + 1.0
    await limiter.close()
    await other.close()


# When a caller is cancelled


async def test_a_fetch_outlives_its_caller() -> None:
    stage = Stage()
    gate = stage.before = Gate()
    limiter = limiter_on(stage)
    first = asyncio.create_task(limiter.acquire(KEY, 4))
    await gate.await_someone()
    others = [asyncio.create_task(limiter.acquire(KEY)) for _ in range(3)]
    await in_line(limiter, 4)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.open()
    await asyncio.gather(*others)
    assert (len(stage.asks), stage.busiest) == (1, 1)  # the four that it brought serve the three behind
    await limiter.acquire(KEY, 7, timeout=0)
    assert not await limiter.try_acquire(KEY)


def steps_of(scene: Callable[[int], Coroutine[Any, Any, bool]]) -> int:
    """Play the scene with the cancellation at each of its steps, until there are no more; return how many there are."""
    return next(n for n in itertools.count() if not run(lambda n=n: scene(n)))  # type: ignore[misc]


async def _cancelled_at(task: "asyncio.Task[Any]", step: int) -> bool:
    """Let the loop turn so many times, then cancel; whether there still was something to cancel."""
    for _ in range(step):
        await asyncio.sleep(0)
    return task.cancel()


@pytest.mark.parametrize("cost", [1, 4])
def test_the_first_of_two_may_be_cancelled_at_each_step(cost: int) -> None:
    """The other is served, nothing is lost, and nothing is minted."""

    async def scene(step: int) -> bool:
        stage = Stage()
        stage.before = stage.after = _turns
        limiter = limiter_on(stage)
        first = asyncio.create_task(limiter.acquire(KEY, cost))
        second = asyncio.create_task(limiter.acquire(KEY, 3))
        cancelled = await _cancelled_at(first, step)
        await asyncio.wait([first, second])
        admitted = (0 if first.cancelled() else cost) + 3
        assert limiter.statistics().admitted == admitted
        assert limiter.statistics().waiting == 0
        await limiter.close()
        assert (await stage.peek(KEY, TEN)).level == 10 - admitted
        return cancelled

    assert steps_of(scene) > 5


def test_a_waiter_may_be_cancelled_at_each_step_of_a_refund() -> None:
    """What it was given, though it never woke for it, is the next one's."""

    async def scene(step: int) -> bool:
        limiter = limiter_on(Stage())
        await limiter.acquire(KEY, 10)
        first, second = await stand_in_line(limiter, 4), await stand_in_line(limiter, 4)
        refund = asyncio.create_task(limiter.refund(KEY, 4))
        cancelled = await _cancelled_at(first, step)
        await asyncio.wait([refund])
        await asyncio.wait([first if not first.cancelled() and not cancelled else second])
        assert first.cancelled() or not second.done()
        second.cancel()
        await asyncio.wait([first, second])
        assert limiter.statistics().admitted == 14
        return cancelled

    assert steps_of(scene) >= 2


def test_a_refund_may_be_cancelled_at_each_step() -> None:
    async def scene(step: int) -> bool:
        stage = Stage()
        limiter = limiter_on(stage)
        await limiter.acquire(KEY, 10)
        await asyncio.sleep(5.0)
        stage.before_back = _turns
        refund = asyncio.create_task(limiter.refund(KEY, 4))
        cancelled = await _cancelled_at(refund, step)
        await asyncio.wait([refund])
        await asyncio.sleep(1.0)
        # Cancelled before it began, it was never asked for; after that, nothing stops it.
        assert (await stage.peek(KEY, TEN)).level == (0 if cancelled and step == 0 else 4)
        return cancelled

    assert steps_of(scene) > 3


async def _turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_all_tasks_may_be_cancelled_at_each_step_and_the_limiter_goes_on() -> None:
    """Its own as well, though they were never begun: whoever comes then is served."""

    async def scene(step: int) -> bool:
        stage = Stage()
        stage.before = stage.after = _turns
        limiter = limiter_on(stage)
        callers = [asyncio.create_task(limiter.acquire(KEY, 2)) for _ in range(3)]
        for _ in range(step):
            await asyncio.sleep(0)
        under_way = not all(each.done() for each in callers)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait(callers)
        stage.before = stage.after = nothing
        spent = limiter.statistics().admitted
        await limiter.acquire(KEY, 10 - spent)
        assert not await limiter.try_acquire(KEY)
        return under_way

    assert steps_of(scene) > 5


async def test_a_wait_under_asyncio_timeout_takes_no_tokens_along() -> None:
    limiter = limiter_on(Stage(), Quota(1.0, 10))
    await limiter.acquire(KEY, 10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.5):
            await limiter.acquire(KEY, 5)
    await limiter.acquire(KEY, 2, timeout=0.5)  # 2.5 have flowed in
    assert limiter.statistics().admitted == 12


async def test_a_caller_that_wakes_too_late_goes_back_to_its_place() -> None:
    """The process was stopped between the verdict and the wake-up, past the lease: those tokens are spent by nobody."""
    limiter = limiter_on(Stage(), Quota(1.0, 10))
    await limiter.acquire(KEY, 10)
    first, second = await stand_in_line(limiter, 4), await stand_in_line(limiter, 1)
    refund = asyncio.create_task(limiter.refund(KEY, 10))
    while limiter.statistics().waiting:  # noqa: ASYNC110  the limiter has no event for it
        await asyncio.sleep(0)
    virtual_loop().leap(100.0)
    await asyncio.gather(first, second, refund)
    assert limiter.statistics().admitted == 15


# What is left


@pytest.mark.parametrize("keys", [(KEY,), (KEY, "other")], ids=["one key", "two keys"])
@pytest.mark.parametrize("burst", [1, 1000], ids=["refused", "admitted"])
async def test_nothing_is_left_for_the_garbage_collector(keys: tuple[str, ...], burst: int) -> None:
    """Its full collection stops a web service for 20 to 60 ms: the more of it the more objects wait for it."""
    limiter = limiter_on(Stage(), Quota(SLOW, burst), sizer=FixedBatch(1))
    with kept(WaitingTask) as left:
        for _ in range(3):
            await limiter.decide_all(dict.fromkeys(keys, 1))
    assert left == []
