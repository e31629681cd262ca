"""isolated_limits: buckets of one test alone, on the store that the limiters have."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from batchlimit.aio.registry import Registry as AsyncRegistry
from batchlimit.bucket.messages import Ask
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.client.scripts import SpendScript
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from batchlimit.stores.redis import RedisStore
from batchlimit.sync.registry import Registry
from batchlimit.testing.scene import SCENE, World

_DEADLINE = 5.0
"""Seconds that an answer may take at the least: a machine that tests keep busy is no outage."""

_AWAY = 2.0
"""Seconds: leases last twice as long."""
S = TypeVar("S")


def fresh_prefix() -> str:
    """Return a prefix that no other test has, in no process; it tells the worker of pytest-xdist.

    Returns:
        Such as "test-gw0-1f0c...".
    """
    return f"test-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{uuid.uuid4().hex}"


class IsolatedWorld(World):
    """Real time and real stores, with a prefix of its own."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def make(self, original: Any) -> Any:
        """See World; a limiter on a store of another kind stays as it is."""
        opened: Any = original._opened
        if isinstance(opened, MemoryStore):
            store: Any = _patient(MemoryStore(opened._clock))
        elif isinstance(opened, AsyncMemoryStore):
            store = AsyncMemoryStore(_patient(MemoryStore(opened._store._clock)))
        elif isinstance(opened, RedisStore | AsyncRedisStore):
            prefix = f"{self._prefix}:{opened._prefix}"
            spending = SpendScript(prefix, "".join(opened._seen), opened._clocks)
            store = object.__new__(RedisStore if isinstance(opened, RedisStore) else AsyncRedisStore)
            vars(store).update(vars(opened), _prefix=prefix, _spending=spending)  # on the same connections
            store = _patient(store)
        else:
            return None
        kind = Registry if isinstance(original, Registry) else AsyncRegistry
        options = replace(original._options, deadline=max(original._options.deadline, _DEADLINE))
        made = kind(store, original.rule, options, original.clock)
        made.store.allow(original.store._connecting)
        return made

    def end(self) -> None:
        for inside in self.insides:
            inside.abandon()


def _patient(store: S) -> S:
    """Have the store lend for as long as to an instance that is far away: a machine that stalls loses no token."""
    its: Any = vars(store)
    own: Any = store
    take = own.take
    its["take"] = lambda key, quota, ask: take(key, quota, _far(ask))
    if send := getattr(own, "send", None):
        its["send"] = lambda key, quota, ask: send(key, quota, _far(ask))
    if take_many := getattr(own, "take_many", None):
        its["take_many"] = lambda asks: take_many([(key, quota, _far(ask)) for key, quota, ask in asks])
    return store


def _far(ask: Ask) -> Ask:
    return ask._replace(round_trip=max(ask.round_trip, _AWAY))


@contextlib.contextmanager
def isolated_limits() -> Iterator[str]:
    """Have all limiters of this process use buckets that nobody else has, for the length of a block.

    They stay on their stores and in real time; the block has a prefix of its own, which stands before theirs. So tests
    on one server do not see each other, in any order and on any number of workers. Nothing needs to be flushed: the
    server drops the buckets when they are full again. A deadline is at least 5 seconds and a lease lasts 4, because a
    machine that tests keep busy is no outage. A store of another kind stays as it is.

    Returns:
        A context manager, whose value is that prefix.

    Example:
        >>> import fakeredis
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.testing import isolated_limits
        >>> limiter = RateLimiter(fakeredis.FakeRedis(), "1/hour")
        >>> for _ in range(2):
        ...     with isolated_limits():
        ...         print(limiter.try_acquire("ann"), limiter.try_acquire("ann"))
        True False
        True False
    """
    prefix = fresh_prefix()
    world = IsolatedWorld(prefix)
    leave = SCENE.enter(world)
    try:
        yield prefix
    finally:
        leave()
        world.end()
