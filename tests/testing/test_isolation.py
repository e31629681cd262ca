"""Isolated limiters have buckets of their own on the store that they have, and get the old ones back."""

import fakeredis
import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimiter
from batchlimit.stores import Ask, MemoryStore
from batchlimit.testing import fresh_prefix, isolated_limits
from tests.servers import Server


def spend(limiter: RateLimiter) -> int:
    return sum(limiter.try_acquire("ann") for _ in range(20))


def test_a_prefix_is_nobody_elses() -> None:
    assert fresh_prefix() != fresh_prefix()


def test_a_prefix_tells_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw7")
    assert fresh_prefix().startswith("test-gw7-")


def test_each_block_begins_with_full_buckets_and_leaves_the_others_alone(
    valkey: Server, limit_prefix: str, far_away: None
) -> None:
    with RateLimiter.from_url(valkey.url, "5/hour", prefix=limit_prefix) as before:
        assert spend(before) == 5
        for _ in range(2):
            with isolated_limits() as prefix:
                assert spend(before) == 5
                assert spend(RateLimiter.from_url(valkey.url, "5/hour", prefix=limit_prefix)) == 0
                assert spend(RateLimiter.from_url(valkey.url, "5/hour", prefix="another")) == 5
                assert valkey.client().exists(f"{{{prefix}:{limit_prefix}:ann}}")
        assert spend(before) == 0


def test_limiters_in_memory_are_isolated_too(far_away: None) -> None:
    limiter = RateLimiter.from_url("memory://", "5/hour")
    with isolated_limits():
        assert spend(limiter) == 5
    assert spend(limiter) == 5


async def test_limiters_of_tasks_are_isolated_too(far_away: None) -> None:
    limiter = AsyncRateLimiter(fakeredis.FakeAsyncRedis(), "1/hour")
    assert await limiter.try_acquire("ann")
    with isolated_limits():
        assert [await limiter.try_acquire("ann") for _ in range(2)] == [True, False]
    assert not await limiter.try_acquire("ann")


def test_a_lease_outlasts_a_machine_that_stalls() -> None:
    limiter = RateLimiter(MemoryStore(), "5/hour")
    with isolated_limits():
        grant = limiter._registry._opened.take("ann", Quota.parse("5/hour"), Ask("one", 1, need=1, queued=1, want=1))
    assert grant.lease >= 4.0
