"""In frozen time a bucket is one token bucket, on both APIs, a call that waits moves the clock, and overrides hold."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import freezegun
import pytest
import redis
import time_machine

from batchlimit import AsyncRateLimiter, LimiterClosed, RateLimited, RateLimiter
from batchlimit.admin import Admin
from batchlimit.stores import MemoryStore
from batchlimit.testing import FrozenLimits, frozen_limits
from batchlimit.testing import scene as scene_module
from tests.apis.blocking import Api, Blocking
from tests.sync.stage import DEADLINE, Clock, start, until

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
    story: list[tuple[float | str | timedelta, int]] = [(11.9, 0), (0.1, 1), (12, 1), (24, 2), (60, 5)]
    story += [("1h", 5), (timedelta(seconds=24), 2)]
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


def test_a_refund_is_there_later_and_what_is_settled_for_more_is_owed(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    assert spend(limiter) == 5
    limiter.refund("ann", 2)
    limits.advance(12)
    assert spend(limiter) == 3
    limits.refill()
    with limiter.reserve("ann", 2) as reservation:
        reservation.settle(7)
    assert spend(limiter) == 0
    limits.advance(36)
    assert spend(limiter) == 1


def test_a_wait_moves_the_clock_and_one_that_is_refused_does_not(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    spend(limiter)
    limiter.acquire("ann", timeout=13)
    assert limits.elapsed == pytest.approx(12, abs=0.01)
    with pytest.raises(RateLimited) as refusal:
        limiter.acquire("ann", timeout=11)
    assert limits.elapsed == pytest.approx(12, abs=0.01)
    limits.advance(refusal.value.retry_after)
    assert limiter.try_acquire("ann")
    limiter.acquire("ann", 5)
    assert limits.elapsed == pytest.approx(84, abs=0.01)
    daily = RateLimiter.from_url(URL, "1/day", prefix="daily")
    for _ in range(2):
        daily.acquire("ann")
    assert limits.elapsed == pytest.approx(84 + 86400, abs=0.02), "and no real time passes"


async def test_tasks_wait_in_the_same_time() -> None:
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


@pytest.mark.usefixtures("restless")
def test_threads_that_wait_are_served_in_time_one_after_the_other(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    spend(limiter)

    def call() -> float:
        with limits._time.changed:  # else another may move the clock before this one has read it
            limiter.acquire("ann", timeout=100)
            return limits.elapsed

    calls = [start(call) for _ in range(5)]
    assert sorted(round(each.result(DEADLINE)) for each in calls) == [12, 24, 36, 48, 60]


@pytest.mark.usefixtures("restless")
def test_threads_that_wait_are_all_served_as_soon_as_the_bucket_allows(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    spend(limiter)
    for each in [start(lambda: limiter.acquire("ann", timeout=100)) for _ in range(5)]:
        each.result(DEADLINE)
    assert limits.elapsed == pytest.approx(60, abs=0.1)


def test_a_limiter_made_before_lives_in_frozen_time_and_goes_on_afterwards_as_before() -> None:
    limiter = RateLimiter.from_url("memory://", "5/hour")
    ann, bob = limiter.bucket("ann"), limiter.bucket("bob")
    assert [ann.try_acquire() for _ in range(3)] == [True] * 3
    assert [bob.try_acquire() for _ in range(6)] == [True] * 5 + [False]
    for _ in range(2):
        with frozen_limits() as limits:
            assert [bob.try_acquire() for _ in range(6)] == [True] * 5 + [False]
            limits.advance("12m")
            assert [bob.try_acquire() for _ in range(2)] == [True, False]
            assert spend(limiter) == 5
    assert [ann.try_acquire() for _ in range(3)] == [True, True, False]
    assert not bob.try_acquire()


def test_a_handle_made_in_frozen_time_is_of_use_afterwards() -> None:
    limiter = RateLimiter.from_url("memory://", "5/hour")
    with frozen_limits() as limits:
        ann = limiter.bucket("ann")
        assert [ann.try_acquire() for _ in range(6)] == [True] * 5 + [False]
        limits.advance("12m")
        assert [ann.try_acquire() for _ in range(2)] == [True, False]
    assert [ann.try_acquire() for _ in range(6)] == [True] * 5 + [False]


def test_limiters_with_one_url_and_prefix_share_their_buckets(limits: FrozenLimits) -> None:
    limiters = [RateLimiter.from_url(URL, FIVE, prefix=prefix) for prefix in ("a", "a", "b")]
    assert [spend(limiter) for limiter in limiters] == [5, 0, 5]
    assert spend(RateLimiter.from_url("memory://", FIVE)) == spend(RateLimiter.from_url("memory://", FIVE)) == 5


async def test_threads_and_tasks_share_their_buckets(limits: FrozenLimits) -> None:
    assert spend(RateLimiter.from_url(URL, FIVE)) == 5
    async with AsyncRateLimiter.from_url(URL, FIVE) as limiter:
        assert not await limiter.try_acquire("ann")
        assert await limiter.try_acquire("bob")


def test_a_limiter_with_a_clock_of_its_own_is_left_alone(limits: FrozenLimits) -> None:
    clock = Clock()
    limiter = RateLimiter(MemoryStore(clock), FIVE, clock=clock)
    assert spend(limiter) == 5
    limits.advance("1h")
    assert spend(limiter) == 0


def test_a_client_is_not_asked(limits: FrozenLimits) -> None:
    limiter = RateLimiter(redis.Redis("192.0.2.1"), FIVE)
    assert spend(limiter) == 5


def test_a_limiter_that_was_closed_is_closed_afterwards() -> None:
    limiter = RateLimiter.from_url("memory://", FIVE)
    with frozen_limits():
        limiter.close()
        with pytest.raises(LimiterClosed):
            limiter.try_acquire("ann")
    with pytest.raises(LimiterClosed):
        limiter.try_acquire("ann")


def test_drain_and_refill_concern_one_key(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, "5/minute; 100/day")
    limits.drain("ann")
    assert (spend(limiter, "ann"), spend(limiter, "bob")) == (0, 5)
    limits.refill("ann")
    assert (spend(limiter, "ann"), spend(limiter, "bob")) == (5, 0)
    limits.refill()
    assert (spend(limiter, "ann"), spend(limiter, "bob")) == (5, 5)
    limits.drain("ann")
    limits.advance("1m")
    assert spend(limiter, "ann") == 0
    limits.advance("14m")
    assert spend(limiter, "ann") == 1


def test_drain_leaves_nothing_of_what_was_refilled_before(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, "100/hour")
    assert spend(limiter, "ann") == 100
    limits.advance("30m")
    limits.drain("ann")
    assert spend(limiter, "ann") == 0


def test_a_key_that_no_limiter_has_a_quota_for_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene_module, "live_limiters", [])  # those of other tests
    with frozen_limits() as limits:
        _limiter = RateLimiter.from_url(URL, {"ann": FIVE})
        limits.drain("ann")
        with pytest.raises(ValueError, match="no limiter has a quota for 'bob'"):
            limits.drain("bob")


@pytest.mark.parametrize("length", ["soon", -1, timedelta(seconds=-1), float("nan"), "1m30s", True, None])
def test_what_is_no_length_of_time_is_a_mistake(limits: FrozenLimits, length: float) -> None:
    with pytest.raises((ValueError, TypeError), match="length of time"):
        limits.advance(length)


def test_a_held_clock_is_moved_by_the_test_alone(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    spend(limiter)
    with limits.holding():
        call = start(lambda: limiter.acquire("ann", timeout=20))
        until(lambda: limiter.statistics().waiting == 1)
        limits.advance(11)
        assert not call.done()
        limits.advance(1)
        call.result(DEADLINE)
    assert limits.elapsed == pytest.approx(12, abs=0.01)


async def test_a_held_clock_holds_tasks_too(limits: FrozenLimits) -> None:
    async with AsyncRateLimiter.from_url(URL, FIVE) as limiter:
        await limiter.acquire("ann", 5)
        with limits.holding():
            call = asyncio.create_task(limiter.acquire("ann", timeout=20))
            for _ in range(100):
                await asyncio.sleep(0)
            assert limits.elapsed == 0
            limits.advance(12)
            await call


def test_a_coroutine_limited_by_a_limiter_of_threads_moves_the_clock(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)

    @limiter.limit("ann", timeout=100)
    async def call() -> float:
        return limits.elapsed

    async def main() -> list[float]:
        return list(await asyncio.gather(*(call() for _ in range(7))))

    assert [round(at) for at in asyncio.run(main())] == [0] * 5 + [12, 24]


def test_several_keys_are_waited_for_together(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, {"user:*": "5/minute", "all": "1/minute"})
    limits.drain("user:ann")
    limits.drain("all")
    limiter.acquire_all({"user:ann": 2, "all": 1}, timeout=100)
    assert limits.elapsed == pytest.approx(60, abs=0.1)
    assert limiter.decide("user:ann", 0).remaining == 3


SEVERAL = {"a": "6/minute", "b": "3/minute"}
"""One key leases, and one spends."""


async def test_tasks_that_wait_for_several_keys_are_served_as_soon_as_each_bucket_allows(
    limits: FrozenLimits,
) -> None:
    async with AsyncRateLimiter.from_url(URL, SEVERAL) as limiter:
        await asyncio.gather(*(limiter.acquire_all({"a": 1, "b": 1}) for _ in range(12)))
    assert limits.elapsed == pytest.approx(9 * 20, abs=0.01)


@pytest.mark.usefixtures("restless")
def test_threads_that_wait_for_several_keys_are_all_served_and_none_before_each_bucket_allows() -> None:
    """A lease may end while its caller waits for the other key: how late they come is up to the scheduler."""
    for _ in range(10):
        with frozen_limits() as limits:
            limiter = RateLimiter.from_url(URL, SEVERAL)
            for each in [start(lambda: limiter.acquire_all({"a": 1, "b": 1})) for _ in range(12)]:  # noqa: B023
                each.result(DEADLINE)
            assert limits.elapsed > 9 * 20 - 0.01


@pytest.mark.parametrize(
    "other", [lambda: freezegun.freeze_time("2026-01-01"), lambda: time_machine.travel(0, tick=False)]
)
def test_another_frozen_clock_changes_nothing(other: Callable[[], Any]) -> None:
    async def main() -> None:
        async with AsyncRateLimiter.from_url(URL, FIVE) as limiter:
            await limiter.acquire("ann", 5)
            await limiter.acquire("ann", timeout=20)

    with other(), frozen_limits() as limits:
        limiter = RateLimiter.from_url("memory://", FIVE)
        assert spend(limiter) == 5
        limiter.acquire("ann", timeout=20)
        assert limits.elapsed == pytest.approx(12, abs=0.01)
        asyncio.run(main())
        assert limits.elapsed == pytest.approx(24, abs=0.01)


def test_no_thread_is_started(limits: FrozenLimits) -> None:
    before = threading.active_count()
    limiter = RateLimiter.from_url(URL, FIVE)
    spend(limiter)
    limits.advance("1m")
    limiter.acquire("ann", 5, timeout=60)
    assert threading.active_count() == before


def test_a_refill_counts_what_was_just_spent(limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url(URL, FIVE)
    limiter.acquire("ann")
    limits.refill("ann")
    assert limiter.peek("ann").remaining == 5
    limiter.acquire("ann")
    limits.refill()
    assert limiter.peek("ann").remaining == 5


def test_no_limiter_holds_more_than_its_callers_asked_for(limits: FrozenLimits) -> None:
    busy, other = (RateLimiter.from_url(URL, FIVE) for _ in range(2))
    assert [busy.try_acquire("ann") for _ in range(2)] == [True, True]
    assert (busy.statistics().held, other.peek("ann").remaining) == (0, 3)
    busy.refund("ann")
    limits.advance(1)
    assert other.peek("ann").remaining == 4


@pytest.mark.parametrize("api", [RateLimiter, Blocking])
@pytest.mark.parametrize("is_made_before", [False, True])
def test_callers_obey_an_override_at_once_and_until_it_ends(is_made_before: bool, api: Api) -> None:
    admin = Admin.from_url(URL)
    with frozen_limits() as limits:
        limiter = api.from_url(URL, "5/minute")
        admin = admin if is_made_before else Admin(redis.Redis.from_url(URL))
        limiter.acquire("ann")
        before = threading.active_count()
        admin.set("ann", "0/s", until="1h")
        assert not limiter.try_acquire("ann")
        assert not api.from_url(URL, "5/minute").try_acquire("ann")
        limits.advance("59m")
        assert not limiter.try_acquire("ann")
        limits.advance("1m")
        assert limiter.try_acquire("ann")
        admin.hold("ann", "1m")
        assert not limiter.try_acquire("ann")
        admin.unset("ann")
        assert limiter.try_acquire("ann")
        assert (admin.unset("ann"), len(admin.history()), threading.active_count()) == ((), 3, before)


def test_an_override_of_frozen_time_ends_with_it() -> None:
    store = MemoryStore()
    admin, limiter = Admin(store), RateLimiter(store, "5/minute")
    with frozen_limits():
        admin.set("ann", "0/s")
        assert not limiter.try_acquire("ann")
    assert (len(admin.overrides()), limiter.try_acquire("ann")) == (0, True)
