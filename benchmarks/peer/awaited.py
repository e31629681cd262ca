"""Every contender for tasks: how it is opened with its best settings, and what a task awaits.

All that ask use redis.asyncio with hiredis, and a pool of as many connections as there are tasks, 64 at the most, like
ours. Packages are imported where they are opened.
"""

from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peer.contender import (
    BATCHED,
    BOUND,
    FLOOR,
    OURS,
    AwaitedCall,
    AwaitedOpened,
    AwaitedOpening,
    Contender,
    Terms,
)
from benchmarks.peer.least_awaited import client, connections, empty, incr, ours, ours_batched, ours_bound
from benchmarks.peer.threaded import BUCKET, WINDOW


@asynccontextmanager
async def limits_fixed(terms: Terms) -> AwaitedOpened:
    from limits import RateLimitItemPerSecond
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import FixedWindowRateLimiter

    async with client(terms) as connected:
        pool: Any = connected.connection_pool
        storage = RedisStorage("async+redis://", implementation="redispy", connection_pool=pool)
        hit = FixedWindowRateLimiter(storage).hit
        yield lambda: AwaitedCall(hit, (RateLimitItemPerSecond(terms.rate), terms.key))


@asynccontextmanager
async def throttled_gcra(terms: Terms) -> AwaitedOpened:
    """See threaded.py."""
    from throttled import rate_limiter
    from throttled.asyncio import Throttled, store

    options = {
        "CONNECTION_POOL_CLASS": "redis.asyncio.BlockingConnectionPool",
        "CONNECTION_POOL_KWARGS": {"max_connections": connections(terms), "timeout": None},
    }
    server = store.RedisStore(server=terms.url, options=options)
    quota = rate_limiter.per_sec(terms.rate, burst=terms.burst)
    limit = Throttled(using="gcra", quota=quota, store=server).limit

    async def call(key: str) -> bool:
        return not (await limit(key)).limited

    yield lambda: AwaitedCall(call, (terms.key,))
    connected: Any = server._backend.get_client()  # the only way to what it opened
    await connected.connection_pool.disconnect()


@asynccontextmanager
async def pyrate(terms: Terms) -> AwaitedOpened:
    """A Limiter for each task: of one for all, a task waits for the answer of the one before."""
    from pyrate_limiter import Duration, Limiter, Rate, SingleBucketFactory, StateBucket, TokenBucket
    from pyrate_limiter.buckets.redis_state import RedisStateStore

    async with client(terms) as connected:

        def line() -> AwaitedCall:
            rate = Rate(terms.rate, Duration.SECOND, burst=terms.burst)
            bucket = StateBucket([rate], algorithm=TokenBucket(), store=RedisStateStore(connected, terms.key))
            limiter = Limiter(SingleBucketFactory(bucket, schedule_leak=False))
            return AwaitedCall(limiter.try_acquire_async, (terms.key, 1, False))

        yield line


@asynccontextmanager
async def aiolimiter(terms: Terms) -> AwaitedOpened:
    """In memory, for one process alone: it asks nobody."""
    from aiolimiter import AsyncLimiter

    limiter = AsyncLimiter(terms.rate, 1.0)

    async def call() -> bool:
        await limiter.acquire()
        return True

    yield lambda: AwaitedCall(call)


AWAITED: tuple[Contender[AwaitedOpening], ...] = (
    Contender(FLOOR, "batchlimit", empty, "", asks=False),
    Contender(OURS, "batchlimit", ours, BUCKET, asks=False),
    Contender(BOUND, "batchlimit", ours_bound, BUCKET, asks=False),
    Contender(BATCHED, "batchlimit", ours_batched, BUCKET, asks=False),
    Contender("limits, fixed window", "limits", limits_fixed, WINDOW),
    Contender("throttled-py, GCRA", "throttled-py", throttled_gcra, BUCKET),
    Contender("pyrate-limiter, token bucket", "pyrate-limiter", pyrate, BUCKET),
    Contender("bare INCR", "redis", incr, WINDOW),
    Contender("aiolimiter, in memory", "aiolimiter", aiolimiter, BUCKET, asks=False),
)
CROWDED: dict[str, Contender[AwaitedOpening]] = {each.name: each for each in AWAITED}
