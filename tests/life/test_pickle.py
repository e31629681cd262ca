"""What belongs to one process is neither pickled nor copied, and the error says what to do instead."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

from batchlimit import (
    AsyncConcurrencyLimiter,
    AsyncRateLimiter,
    ConcurrencyLimited,
    ConcurrencyLimiter,
    Decision,
    LimiterClosed,
    Partitions,
    Quota,
    RateLimited,
    RateLimiter,
    StoreUnavailable,
)
from batchlimit.errors import BucketUnavailable, Unfit
from batchlimit.integrations.wsgi import RateLimitMiddleware
from batchlimit.rules import Rule
from batchlimit.stores import AsyncRedisStore, MemoryStore, RedisStore
from batchlimit.stores.memory import AsyncMemoryStore
from tests.awaiting import awaited


def reservation() -> object:
    return RateLimiter(MemoryStore(), "5/s").reserve("key", 1)


def async_reservation() -> object:
    async def reserve() -> object:
        return await AsyncRateLimiter(MemoryStore(), "5/s").reserve("key", 1)

    return awaited(reserve)


def permit() -> object:
    found = ConcurrencyLimiter().acquire()
    found.ignore()
    return found


def async_permit() -> object:
    async def acquire() -> object:
        found = await AsyncConcurrencyLimiter().acquire()
        found.ignore()
        return found

    return awaited(acquire)


UNIQUE: list[tuple[Callable[[], object], str]] = [
    (lambda: RateLimiter(MemoryStore(), "5/s"), "make one in each process, from the same URL"),
    (lambda: AsyncRateLimiter(MemoryStore(), "5/s"), "make one in each process, from the same URL"),
    (ConcurrencyLimiter, "make one in each process"),
    (AsyncConcurrencyLimiter, "make one in each process"),
    (reservation, "settle it where it was made"),
    (async_reservation, "settle it where it was made"),
    (permit, "acquire another one there"),
    (async_permit, "acquire another one there"),
    (MemoryStore, "use a server"),
    (lambda: AsyncMemoryStore(MemoryStore()), "use a server"),
    (lambda: RedisStore(redis.Redis()), "make one in each process"),
    (lambda: AsyncRedisStore(redis.asyncio.Redis()), "make one in each process"),
]


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda way: way.__name__)
@pytest.mark.parametrize(("make", "instead"), UNIQUE)
def test_it_stays_where_it_is_and_says_what_to_do(make: Callable[[], object], instead: str, way: Any) -> None:
    thing = make()
    with pytest.raises(TypeError, match=f"a {type(thing).__name__} belongs to its process.*{instead}"):
        way(thing)


@pytest.mark.parametrize(
    "thing",
    [
        Quota.per_minute(100) & Quota.per_day(5000),
        RateLimiter(MemoryStore(), "5/s").statistics(),
        RateLimiter(MemoryStore(), "5/s").decide("key"),
        ConcurrencyLimiter().statistics(),
        RateLimitMiddleware(lambda *_: (), "memory://", [Rule("all", "5/s", key="all")]).statistics(),
        Partitions({"live": 0.5}, strict=True, unknown="refuse", caps={"": 0.1}),
    ],
)
def test_what_is_a_value_travels(thing: object) -> None:
    assert pickle.loads(pickle.dumps(thing)) == copy.deepcopy(thing) == thing


@pytest.mark.parametrize(
    "error",
    [
        RateLimited("key", 1.5, Decision(False, 5, 0, 1.5, 1.0, "store")),
        ConcurrencyLimited("limit", 0.5, limit=3, in_flight=4),
        StoreUnavailable("a: full", key="k", address="a", code="OOM"),
        BucketUnavailable("b", key="k", address="a"),
        Unfit("key", 7, 5),
        LimiterClosed("closed"),
    ],
)
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_travels_with_what_it_carries(error: Exception, way: Any) -> None:
    """As multiprocessing and concurrent.futures send it back."""
    found = way(error)
    assert type(found) is type(error)
    assert (str(found), vars(found), found.__reduce__()) == (str(error), vars(error), error.__reduce__())
