"""What ours is called by in threads, and the least that a call can be: nothing, a counter, a script."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle

import redis

from batchlimit import Quota, RateLimiter
from batchlimit.batching import BatchSizer, FixedBatch
from batchlimit.reservoir.sizing import DEFAULT_SIZER
from benchmarks.peer.contender import Call, Opened, Terms
from benchmarks.rivals.request import Take
from benchmarks.rivals.store import SCRIPT, arguments

DEADLINE = 1.0
"""Seconds that ours waits for an answer: a busy machine is no failure of the store."""
MANY = 1000
"""Keys, where there are many."""


@contextmanager
def empty(terms: Terms) -> Opened:
    """What a loop, a call and its answer cost."""

    def call(key: str) -> bool:
        return True

    yield lambda: Call(call, (terms.key,))


@contextmanager
def ours(terms: Terms) -> Opened:
    with _limiter(terms) as limiter:
        yield lambda: Call(limiter.try_acquire, (terms.key,))


@contextmanager
def ours_bound(terms: Terms) -> Opened:
    """With a handle that knows its key."""
    with _limiter(terms) as limiter:
        yield lambda: Call(limiter.bucket(terms.key).try_acquire)


@contextmanager
def ours_batched(terms: Terms) -> Opened:
    """A thousand tokens at a time, however many there are and are asked for."""
    with _limiter(terms, FixedBatch(1000)) as limiter:
        yield lambda: Call(limiter.bucket(terms.key).try_acquire)


@contextmanager
def ours_single(terms: Terms) -> Opened:
    """A token at a time."""
    with _limiter(terms, FixedBatch(1)) as limiter:
        yield lambda: Call(limiter.try_acquire, (terms.key,))


@contextmanager
def ours_many(terms: Terms) -> Opened:
    """A token at a time, a thousand keys in turn."""
    with _limiter(terms, FixedBatch(1)) as limiter:
        yield lambda: Call(_in_turn(terms, limiter.try_acquire))


@contextmanager
def incr(terms: Terms) -> Opened:
    """A counter that goes away a second after its first increment."""
    with client(terms) as connected:

        def call(key: str) -> bool:
            count = connected.incr(key)
            if count == 1:
                connected.expire(key, 1)
            return bool(count <= terms.rate)

        yield lambda: Call(call, (terms.key,))


@contextmanager
def evalsha(terms: Terms) -> Opened:
    """A plain token bucket in Lua."""
    with client(terms) as connected:
        yield lambda: Call(_plain_bucket(connected, terms), (terms.key,))


@contextmanager
def evalsha_many(terms: Terms) -> Opened:
    """The same, a thousand keys in turn."""
    with client(terms) as connected:
        yield lambda: Call(_in_turn(terms, _plain_bucket(connected, terms)))


@contextmanager
def client(terms: Terms) -> Iterator[redis.Redis]:
    """A client of redis-py as it comes, with a pool of its own."""
    with redis.Redis.from_url(terms.url) as connected:
        yield connected


def _limiter(terms: Terms, sizer: BatchSizer = DEFAULT_SIZER) -> RateLimiter:
    return RateLimiter.from_url(terms.url, Quota(terms.rate, terms.burst), sizer=sizer, deadline=DEADLINE)


def _plain_bucket(connected: redis.Redis, terms: Terms) -> Callable[[str], bool]:
    sha = connected.script_load(SCRIPT)
    whole = arguments(Quota(terms.rate, terms.burst), Take(1, whole=True))

    def call(key: str) -> bool:
        return bool(connected.evalsha(sha, 1, key, *whole))

    return call


def _in_turn(terms: Terms, call: Callable[[str], bool]) -> Callable[[], bool]:
    keys = cycle([f"{terms.key}:{number}" for number in range(MANY)])
    return lambda: call(next(keys))
