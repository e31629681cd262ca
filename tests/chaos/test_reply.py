"""A reply that is lost after its take was carried out: the tokens are charged once, and are spent once."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimiter, StoreUnavailable
from batchlimit.stores.redis import RedisStore
from tests.relay import Relay
from tests.servers import Server

HOURLY = Quota.per_hour(100)  # nothing to speak of is refilled while the test runs
PATIENCE = 30.0

pytestmark = pytest.mark.usefixtures("far_away")  # leases last longer than this machine may stall


@pytest.fixture
def relay(valkey: Server) -> Iterator[Relay]:
    with Relay(valkey.url, 0.0002) as relay:
        yield relay


def level(store: RedisStore) -> int:
    return store.peek("key", HOURLY).level


def until_charged(store: RedisStore, limiter: RateLimiter | AsyncRateLimiter) -> None:
    """Wait until what was asked without an answer is carried out; from then on the limiter is patient."""
    deadline = time.monotonic() + PATIENCE
    while level(store) == HOURLY.largest_cost:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    limiter._registry.store._deadline = PATIENCE


def test_a_take_whose_reply_was_lost_is_charged_once(relay: Relay, valkey_store: RedisStore, prefix: str) -> None:
    with RateLimiter.from_url(relay.url, HOURLY, prefix=prefix, deadline=0.2) as limiter:
        limiter.try_acquire("other")  # connected, and the script is there
        relay.lose_replies()
        with pytest.raises(StoreUnavailable):
            limiter.decide("key", 10)
        until_charged(valkey_store, limiter)
        relay.restore()
        assert sum(10 for _ in range(12) if limiter.try_acquire("key", 10)) == 100
    assert level(valkey_store) == 0


def test_what_was_leased_without_an_answer_is_given_back(relay: Relay, valkey_store: RedisStore, prefix: str) -> None:
    """The next ask repeats the lost one, so that its tokens are known, and returned like any others."""
    with RateLimiter.from_url(relay.url, HOURLY, prefix=prefix, deadline=0.2) as limiter:
        limiter.try_acquire("other")
        relay.lose_replies()
        with pytest.raises(StoreUnavailable):
            limiter.decide("key", 10)
        until_charged(valkey_store, limiter)
        relay.restore()
        assert limiter.try_acquire("key", 10)
    assert level(valkey_store) == 90


def test_a_task_is_charged_once_too(relay: Relay, valkey_store: RedisStore, prefix: str) -> None:
    async def run() -> int:
        async with AsyncRateLimiter.from_url(relay.url, HOURLY, prefix=prefix, deadline=0.2) as limiter:
            await limiter.try_acquire("other")
            relay.lose_replies()
            with pytest.raises(StoreUnavailable):
                await limiter.decide("key", 10)
            until_charged(valkey_store, limiter)
            relay.restore()
            return sum([10 for _ in range(12) if await limiter.try_acquire("key", 10)])

    assert asyncio.run(run()) == 100
    assert level(valkey_store) == 0
