"""Every contender for threads: how it is opened with its best settings, and what a thread calls.

All that ask use redis-py with hiredis, and a pool that has a connection for each thread. Packages are imported where
they are opened: whoever lacks one measures the others.
"""

from contextlib import ExitStack, closing, contextmanager
from typing import Any

from benchmarks.peer.contender import BATCHED, BOUND, FLOOR, OURS, Call, Contender, Opened, Opening, Terms
from benchmarks.peer.least import (
    MANY,
    client,
    empty,
    evalsha,
    evalsha_many,
    incr,
    ours,
    ours_batched,
    ours_bound,
    ours_many,
    ours_single,
)


@contextmanager
def limits_fixed(terms: Terms) -> Opened:
    from limits import RateLimitItemPerSecond
    from limits.storage import RedisStorage
    from limits.strategies import FixedWindowRateLimiter

    with client(terms) as connected:
        storage = RedisStorage("redis://", connection_pool=connected.connection_pool)
        hit = FixedWindowRateLimiter(storage).hit
        yield lambda: Call(hit, (RateLimitItemPerSecond(terms.rate), terms.key))


@contextmanager
def limits_sliding(terms: Terms) -> Opened:
    from limits import RateLimitItemPerSecond
    from limits.storage import RedisStorage
    from limits.strategies import SlidingWindowCounterRateLimiter

    with client(terms) as connected:
        storage = RedisStorage("redis://", connection_pool=connected.connection_pool)
        hit = SlidingWindowCounterRateLimiter(storage).hit
        yield lambda: Call(hit, (RateLimitItemPerSecond(terms.rate), terms.key))


@contextmanager
def throttled_gcra(terms: Terms) -> Opened:
    """The one of its algorithms that takes a burst and counts in less than whole seconds."""
    from throttled import Throttled, rate_limiter, store

    server = store.RedisStore(server=terms.url, options={"REUSE_CONNECTION": False})
    quota = rate_limiter.per_sec(terms.rate, burst=terms.burst)
    limit = Throttled(using="gcra", quota=quota, store=server).limit

    def call(key: str) -> bool:
        return not limit(key).limited

    yield lambda: Call(call, (terms.key,))
    connected: Any = server._backend.get_client()  # the only way to what it opened
    connected.connection_pool.disconnect()


@contextmanager
def pyrate(terms: Terms) -> Opened:
    """A Limiter for each thread: where all share one, who finds its lock held is refused, tokens or not.

    A bucket of this kind has nothing to leak, so no thread is started that would see to it.
    """
    from pyrate_limiter import Duration, Limiter, Rate, SingleBucketFactory, StateBucket, TokenBucket
    from pyrate_limiter.buckets.redis_state import RedisStateStore

    with client(terms) as connected, ExitStack() as stack:

        def line() -> Call:
            rate = Rate(terms.rate, Duration.SECOND, burst=terms.burst)
            bucket = StateBucket([rate], algorithm=TokenBucket(), store=RedisStateStore(connected, terms.key))
            limiter = stack.enter_context(closing(Limiter(SingleBucketFactory(bucket, schedule_leak=False))))
            admits: Any = limiter.try_acquire  # a bool here: its client is no asyncio client
            return Call(admits, (terms.key, 1, False))

        yield line


@contextmanager
def redis_rate_limiters(terms: Terms) -> Opened:
    """It sleeps until there is a token, and raises where that takes longer than it may: next to no time, here."""
    from limiters import MaxSleepExceededError, SyncTokenBucket

    with client(terms) as connected:
        bucket = SyncTokenBucket(
            connection=connected,
            name=terms.key,
            capacity=terms.burst,
            refill_frequency=1.0,  # each step puts its slot 20 ms ahead, so more of them would refuse more
            refill_amount=terms.rate,
            max_sleep=1e-6,
        )

        def call() -> bool:
            try:
                with bucket:
                    return True
            except MaxSleepExceededError:
                return False

        yield lambda: Call(call)


BUCKET = "burst + rate x t"
STEPS = "burst, and rate more at each full second"
WINDOW = "rate, in each second that begins with its first call"
SLIDING = "about rate, in any second"
"""What they promise."""
THREADED: tuple[Contender[Opening], ...] = (
    Contender(FLOOR, "batchlimit", empty, "", asks=False),
    Contender(OURS, "batchlimit", ours, BUCKET, asks=False),
    Contender(BOUND, "batchlimit", ours_bound, BUCKET, asks=False),
    Contender(BATCHED, "batchlimit", ours_batched, BUCKET, asks=False),
    Contender("limits, fixed window", "limits", limits_fixed, WINDOW),
    Contender("limits, sliding counter", "limits", limits_sliding, SLIDING),
    Contender("throttled-py, GCRA", "throttled-py", throttled_gcra, BUCKET),
    Contender("pyrate-limiter, token bucket", "pyrate-limiter", pyrate, BUCKET),
    Contender("redis-rate-limiters", "redis-rate-limiters", redis_rate_limiters, STEPS),
    Contender("bare INCR", "redis", incr, WINDOW),
)
SINGLE: tuple[Contender[Opening], ...] = (
    Contender(f"{OURS}, batch of 1", "batchlimit", ours_single, BUCKET),
    Contender("plain EVALSHA", "redis", evalsha, BUCKET),
    Contender(f"{OURS}, batch of 1, 1000 keys", "batchlimit", ours_many, BUCKET, keys=MANY),
    Contender("plain EVALSHA, 1000 keys", "redis", evalsha_many, BUCKET, keys=MANY),
)
"""Those that are compared where nothing can be leased ahead, in pairs: ours, and what it is compared with."""
TOGETHER = tuple(zip([each.name for each in SINGLE[::2]], [each.name for each in SINGLE[1::2]], strict=True))
CONTENDERS: dict[str, Contender[Opening]] = {each.name: each for each in THREADED + SINGLE}
