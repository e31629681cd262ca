"""In frozen time a bucket is one token bucket, on both APIs, and a call that waits moves the clock."""

import asyncio
from collections.abc import Iterator

import pytest

from batchlimit import AsyncRateLimiter, RateLimited, RateLimiter
from batchlimit.testing import FrozenLimits, frozen_limits
from tests.sync.stage import DEADLINE, start

URL = "redis://192.0.2.1:1/0"
"""Nobody is there."""
FIVE = "5/minute"


@pytest.fixture
def limits() -> Iterator[FrozenLimits]:
    with frozen_limits() as limits:
        yield limits


def spend(limiter: RateLimiter, key: str = "ann") -> int:
    return sum(limiter.try_acquire(key) for _ in range(200))


def test_a_bucket_is_full_at_first_and_refills_as_time_is_moved(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    assert spend(limiter) == 5
    story: list[tuple[float | str, int]] = [(11.9, 0), (0.1, 1), (12, 1), (24, 2), (60, 5), ("1h", 5)]
    for seconds, tokens in story:
        limits.advance(seconds)
        assert spend(limiter) == tokens, seconds


@pytest.mark.parametrize("spent", range(1, 6))
def test_every_spent_token_is_back_after_its_time(limits: FrozenLimits, spent: int) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    for _ in range(spent):
        assert limiter.try_acquire("ann")
    limits.advance(12 * spent)
    assert limiter.peek("ann").remaining == 5
    assert spend(limiter) == 5


def test_a_refund_is_there_at_once_and_later(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    assert spend(limiter) == 5
    limiter.refund("ann", 2)
    limits.advance(12)
    assert spend(limiter) == 3


def test_what_is_settled_for_more_is_owed(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    with limiter.reserve("ann", 2) as reservation:
        reservation.settle(7)
    assert spend(limiter) == 0
    limits.advance(36)
    assert spend(limiter) == 1


def test_a_wait_moves_the_clock(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    spend(limiter)
    limiter.acquire("ann", timeout=13)
    assert limits.elapsed == pytest.approx(12, abs=0.01)
    with pytest.raises(RateLimited):
        limiter.acquire("ann", timeout=11)
    assert limits.elapsed == pytest.approx(12, abs=0.01)
    limiter.acquire("ann", 5)
    assert limits.elapsed == pytest.approx(72, abs=0.01)


def test_a_wait_of_a_day_takes_no_time(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, "1/day")
    limiter.acquire("ann")
    limiter.acquire("ann")
    assert limits.elapsed == pytest.approx(86400, abs=0.01)


def test_tasks_wait_in_the_same_time() -> None:
    async def main() -> None:
        with frozen_limits() as limits:
            async with AsyncRateLimiter.from_url(URL, FIVE) as limiter:
                ends = []

                async def call() -> None:
                    await limiter.acquire("ann", timeout=100)
                    ends.append(round(limits.elapsed, 2))

                await asyncio.gather(*(call() for _ in range(10)))
                assert ends == [0.0] * 5 + [12.0, 24.0, 36.0, 48.0, 60.0]
                limits.advance(12)
                assert await limiter.try_acquire("ann")
                assert not await limiter.try_acquire("ann")

    asyncio.run(main())


def test_threads_that_wait_are_served_in_time_one_after_the_other(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    spend(limiter)

    def call() -> float:
        limiter.acquire("ann", timeout=100)
        return limits.elapsed

    calls = [start(call) for _ in range(5)]
    assert sorted(round(each.result(DEADLINE)) for each in calls) == [12, 24, 36, 48, 60]
