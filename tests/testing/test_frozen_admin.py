"""In frozen time an Admin sets overrides of the limiters that live there, and they obey at once."""

import asyncio
import threading
from datetime import timedelta

import pytest
import redis

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.admin import Admin, AsyncAdmin
from batchlimit.stores import MemoryStore
from batchlimit.testing import frozen_limits

URL = "redis://192.0.2.1:1/0"
"""Nobody is there."""


def test_a_length_of_time_may_be_a_timedelta() -> None:
    with frozen_limits() as limits:
        limits.advance(timedelta(minutes=1))
        assert limits.elapsed == pytest.approx(60, abs=0.01)
        with pytest.raises(ValueError, match="at least 0 seconds"):
            limits.advance(timedelta(seconds=-1))


@pytest.mark.parametrize("is_made_before", [False, True])
def test_threads_obey_an_override_at_once_and_until_it_ends(is_made_before: bool) -> None:
    admin = Admin.from_url(URL)
    with frozen_limits() as limits:
        limiter = RateLimiter.from_url(URL, "5/minute")
        admin = admin if is_made_before else Admin(redis.Redis.from_url(URL))
        limiter.acquire("ann")
        before = threading.active_count()
        admin.set("ann", "0/s", until="1h")
        assert not limiter.try_acquire("ann")
        assert not RateLimiter.from_url(URL, "5/minute").try_acquire("ann")
        limits.advance("59m")
        assert not limiter.try_acquire("ann")
        limits.advance("1m")
        assert limiter.try_acquire("ann")
        admin.set("ann", "20/minute")
        admin.unset("ann")
        assert (admin.unset("ann"), len(admin.history()), threading.active_count()) == ((), 4, before)


def test_tasks_obey_an_override_at_once_and_until_it_ends() -> None:
    async def main() -> None:
        async with AsyncRateLimiter.from_url(URL, "5/minute") as limiter, AsyncAdmin.from_url(URL) as admin:
            await limiter.acquire("ann")
            await admin.set("ann", "0/s", until="1h")
            assert not await limiter.try_acquire("ann")
            limits.advance("59m")
            assert not await limiter.try_acquire("ann")
            limits.advance("1m")
            assert await limiter.try_acquire("ann")
            await admin.hold("ann", "1m")
            assert not await limiter.try_acquire("ann")
            await admin.unset("ann")
            assert await limiter.try_acquire("ann")

    with frozen_limits() as limits:
        asyncio.run(main())


def test_an_override_of_frozen_time_ends_with_it() -> None:
    store = MemoryStore()
    admin, limiter = Admin(store), RateLimiter(store, "5/minute")
    with frozen_limits():
        admin.set("ann", "0/s")
        assert not limiter.try_acquire("ann")
    assert (len(admin.overrides()), limiter.try_acquire("ann")) == (0, True)
