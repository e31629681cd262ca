"""A reply that is lost after its take was carried out: the tokens are charged once, and are spent once."""

from collections.abc import Iterator
from typing import Any

import pytest

from batchlimit import Quota, RateLimiter, StoreUnavailable
from batchlimit.stores.redis import RedisStore
from tests.apis.blocking import Api, Blocking
from tests.relay import Relay
from tests.servers import Server

HOURLY = Quota.per_hour(100)  # nothing to speak of is refilled while the test runs
PATIENCE = 30.0

pytestmark = pytest.mark.usefixtures("far_away", "without_breaker")  # leases last longer than this machine may stall


@pytest.fixture
def relay(valkey: Server) -> Iterator[Relay]:
    with Relay(valkey.url, 0.0002) as relay:
        yield relay


def level(store: RedisStore) -> int:
    told: int = store.peek("key", HOURLY).level
    return told


def lose_a_reply(relay: Relay, limiter: Any, store: RedisStore) -> None:
    """Ask for ten tokens, and be answered by nobody; anew where this machine stalled before the store heard of it."""
    guard = getattr(limiter, "_inner", limiter)._registry.store
    for key in ("other", "key"):
        limiter.acquire(key, 0)  # in use: it leases
    limiter.acquire("other")  # the script is there
    while level(store) == HOURLY.largest_cost:
        limiter.peek("other")  # connected
        relay.lose_replies()
        guard.deadline = 0.2
        with pytest.raises(StoreUnavailable):
            limiter.decide("key", 10)
        guard.deadline = PATIENCE
        relay.restore()


@pytest.mark.parametrize("api", [RateLimiter, Blocking])
def test_a_take_whose_reply_was_lost_is_charged_once(
    relay: Relay, valkey_store: RedisStore, prefix: str, api: Api
) -> None:
    with api.from_url(relay.url, HOURLY, prefix=prefix, deadline=PATIENCE) as limiter:
        lose_a_reply(relay, limiter, valkey_store)
        assert sum(10 for _ in range(12) if limiter.try_acquire("key", 10)) == 100
    assert level(valkey_store) == 0


def test_what_was_leased_without_an_answer_is_given_back(relay: Relay, valkey_store: RedisStore, prefix: str) -> None:
    """The next ask repeats the lost one, so that its tokens are known, and returned like any others."""
    with RateLimiter.from_url(relay.url, HOURLY, prefix=prefix, deadline=PATIENCE) as limiter:
        lose_a_reply(relay, limiter, valkey_store)
        assert limiter.try_acquire("key", 10)
    assert level(valkey_store) == 90
