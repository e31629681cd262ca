"""In frozen time callers wait at concurrency limiters as they do in the real one, and a wait moves the clock."""

import asyncio
import math
import time

import pytest

from batchlimit import (
    AsyncConcurrencyLimiter,
    AsyncRateLimiter,
    ConcurrencyLimited,
    ConcurrencyLimiter,
    Queue,
    RateLimiter,
)
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedConcurrencyLimiter
from batchlimit.laws import Fixed
from batchlimit.testing import FrozenLimits, frozen_limits
from tests.recording import Recording
from tests.sync.stage import start, until

QUEUE = Queue(10, max_wait=60.0)


@pytest.mark.parametrize(("timeout", "waited"), [(5.0, 5.0), (None, 60.0), (3600.0, 60.0), (0.0, 0.0), (1e-9, 0.0)])
def test_a_thread_waits_until_its_timeout_and_no_real_time_passes(
    timeout: float | None, waited: float, frozen_limits: FrozenLimits
) -> None:
    limiter = ConcurrencyLimiter(Fixed(1), queue=QUEUE)
    with limiter.acquire(), pytest.raises(ConcurrencyLimited) as refusal:
        limiter.acquire(timeout=timeout)
    assert refusal.value.reason == ("queue_timeout" if timeout != 0.0 else "limit")
    assert frozen_limits.elapsed == pytest.approx(waited, abs=1e-4)
    assert limiter.statistics().waits.total == (timeout != 0.0)


@pytest.mark.parametrize(("timeout", "waited"), [(5.0, 5.0), (None, 60.0)])
def test_a_task_waits_until_its_timeout(timeout: float | None, waited: float, frozen_limits: FrozenLimits) -> None:
    async def work() -> str:
        limiter = AsyncConcurrencyLimiter(Fixed(1), queue=QUEUE)
        async with limiter.acquire():
            with pytest.raises(ConcurrencyLimited) as refusal:
                await limiter.acquire(timeout=timeout)
        return refusal.value.reason

    assert asyncio.run(work()) == "queue_timeout"
    assert frozen_limits.elapsed == pytest.approx(waited, abs=1e-4)


def test_a_thread_is_served_as_soon_as_there_is_room(frozen_limits: FrozenLimits) -> None:
    limiter = ConcurrencyLimiter(Fixed(1), queue=QUEUE)
    held = limiter.acquire()
    with frozen_limits.holding():
        waits = start(lambda: limiter.acquire(timeout=5.0).success())
        until(lambda: limiter.statistics().waiting == 1)
        frozen_limits.advance(4.0)
        held.success()
        waits.result()
    assert limiter.statistics().succeeded == 2


def test_a_thread_leaves_when_the_test_moves_time_past_its_timeout(frozen_limits: FrozenLimits) -> None:
    limiter = ConcurrencyLimiter(Fixed(1), queue=QUEUE)
    with limiter.acquire(), frozen_limits.holding():
        waits = start(lambda: limiter.acquire(timeout=5.0))
        until(lambda: limiter.statistics().waiting == 1)
        frozen_limits.advance(5.0)
        with pytest.raises(ConcurrencyLimited):
            waits.result()


def test_tasks_that_can_go_on_do_so_before_the_clock_is_moved(frozen_limits: FrozenLimits) -> None:
    async def work(limiter: AsyncConcurrencyLimiter) -> None:
        async with limiter.acquire(timeout=5.0):
            await asyncio.sleep(0)

    async def crowd() -> int:
        limiter = AsyncConcurrencyLimiter(Fixed(1), queue=QUEUE)
        await asyncio.gather(*[work(limiter) for _ in range(10)])
        return limiter.statistics().succeeded

    assert asyncio.run(crowd()) == 10
    assert frozen_limits.elapsed == 0.0


def test_what_passes_within_a_call_is_how_long_it_took(frozen_limits: FrozenLimits) -> None:
    law = Recording(1)
    limiter = ConcurrencyLimiter(law)
    with limiter.acquire():
        frozen_limits.advance("3s")
    assert [round(sample.rtt_ns / 1e9, 3) for sample in law.samples] == [3.0]


def test_callers_of_both_kinds_of_limiter_wait_by_one_clock(frozen_limits: FrozenLimits) -> None:
    limiter, rate = ConcurrencyLimiter(Fixed(1), queue=QUEUE), RateLimiter.from_url("memory://", "1/minute")
    rate.acquire("ann")
    with limiter.acquire():
        rate.acquire("ann", timeout=61)
        with pytest.raises(ConcurrencyLimited):
            limiter.acquire(timeout=5.0)
    assert frozen_limits.elapsed == pytest.approx(65.0, abs=0.001)


async def test_tasks_of_both_kinds_of_limiter_wait_by_one_clock(frozen_limits: FrozenLimits) -> None:
    limiter, rate = (
        AsyncConcurrencyLimiter(Fixed(1), queue=QUEUE),
        AsyncRateLimiter.from_url("memory://", "1/minute"),
    )
    await rate.acquire("ann")
    async with limiter.acquire():
        await rate.acquire("ann", timeout=61)
        with pytest.raises(ConcurrencyLimited):
            await limiter.acquire(timeout=5.0)
    await rate.close()
    assert frozen_limits.elapsed == pytest.approx(65.0, abs=0.001)


def test_several_keys_have_one_timeout(frozen_limits: FrozenLimits) -> None:
    limiter = KeyedConcurrencyLimiter({"*": Keyed(1, queue=QUEUE)})
    with limiter.acquire("a"), limiter.acquire("b"), pytest.raises(ConcurrencyLimited):
        limiter.acquire_all(["a", "b"], timeout=5.0)
    assert frozen_limits.elapsed == pytest.approx(5.0, abs=0.001)


async def test_several_keys_of_a_task_have_one_timeout(frozen_limits: FrozenLimits) -> None:
    limiter = AsyncKeyedConcurrencyLimiter({"*": Keyed(1, queue=QUEUE)})
    async with limiter.acquire("a"), limiter.acquire("b"):
        with pytest.raises(ConcurrencyLimited):
            await limiter.acquire_all(["a", "b"], timeout=5.0)
    assert frozen_limits.elapsed == pytest.approx(5.0, abs=0.001)


def test_time_goes_on_from_where_it_was_and_never_back() -> None:
    law = Recording(1)
    limiter = ConcurrencyLimiter(law)
    for _ in range(3):
        limiter.acquire().success()
        with frozen_limits() as limits:
            limiter.acquire().success()
            limits.advance("1h")
            limiter.acquire().success()
    limiter.acquire().success()
    starts = [sample.start_ns for sample in law.samples]
    assert starts == sorted(starts)
    assert starts[-1] - starts[0] >= 3 * 3600e9


def test_a_call_that_began_before_and_one_that_ends_after_take_no_time_below_0() -> None:
    law = Recording(1)
    limiter = ConcurrencyLimiter(law)
    before = limiter.acquire()
    with frozen_limits() as limits:
        before.success()
        limits.advance("1m")
        after = limiter.acquire()
    after.success()
    assert all(0 <= sample.rtt_ns < math.inf for sample in law.samples)


def test_a_limiter_with_a_clock_of_its_own_keeps_it(frozen_limits: FrozenLimits) -> None:
    limiter = ConcurrencyLimiter(Fixed(1), clock=lambda: 7)
    frozen_limits.advance("1h")
    with limiter.acquire() as permit:
        assert permit.start_ns == 7


def test_limiters_go_by_the_real_clock_again_if_no_time_has_passed() -> None:
    limiter = ConcurrencyLimiter(Fixed(1))
    with frozen_limits():
        assert limiter._locked_gate.clock is not time.monotonic_ns
    assert limiter._locked_gate.clock is time.monotonic_ns
