"""What ours is called by in tasks, and the least that an awaited call can be: nothing, or a counter."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio

from batchlimit import AsyncRateLimiter, Quota
from batchlimit.batching import BatchSizer, FixedBatch
from batchlimit.reservoir.sizing import DEFAULT_SIZER
from benchmarks.peer.contender import AwaitedCall, AwaitedOpened, Terms
from benchmarks.peer.least import DEADLINE

_CONNECTIONS = 64


@asynccontextmanager
async def empty(terms: Terms) -> AwaitedOpened:
    """What a loop, an awaited call and its answer cost."""

    async def call(key: str) -> bool:
        return True

    yield lambda: AwaitedCall(call, (terms.key,))


@asynccontextmanager
async def ours(terms: Terms) -> AwaitedOpened:
    async with _limiter(terms) as limiter:
        yield lambda: AwaitedCall(limiter.try_acquire, (terms.key,))


@asynccontextmanager
async def ours_bound(terms: Terms) -> AwaitedOpened:
    """With a handle that knows its key."""
    async with _limiter(terms) as limiter:
        yield lambda: AwaitedCall(limiter.bucket(terms.key).try_acquire)


@asynccontextmanager
async def ours_batched(terms: Terms) -> AwaitedOpened:
    """A thousand tokens at a time, however many there are and are asked for."""
    async with _limiter(terms, FixedBatch(1000)) as limiter:
        yield lambda: AwaitedCall(limiter.bucket(terms.key).try_acquire)


@asynccontextmanager
async def incr(terms: Terms) -> AwaitedOpened:
    """A counter that goes away a second after its first increment."""
    async with client(terms) as connected:

        async def call(key: str) -> bool:
            count = await connected.incr(key)
            if count == 1:
                await connected.expire(key, 1)
            return bool(count <= terms.rate)

        yield lambda: AwaitedCall(call, (terms.key,))


def _limiter(terms: Terms, sizer: BatchSizer = DEFAULT_SIZER) -> AsyncRateLimiter:
    return AsyncRateLimiter.from_url(terms.url, Quota(terms.rate, terms.burst), sizer=sizer, deadline=DEADLINE)


def connections(terms: Terms) -> int:
    return min(terms.callers, _CONNECTIONS)


@asynccontextmanager
async def client(terms: Terms) -> AsyncIterator[redis.asyncio.Redis]:
    pool = redis.asyncio.BlockingConnectionPool.from_url(terms.url, max_connections=connections(terms), timeout=None)
    async with redis.asyncio.Redis.from_pool(pool) as connected:
        yield connected
