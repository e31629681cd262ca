"""Where buckets live: each store runs `take`, `give_back` and `peek` of a bucket atomically.

A URL or a redis-py client is enough for a limiter. Use RedisStore for settings of its own, MemoryStore in tests, and
write a Store, or an AsyncStore, to keep buckets elsewhere; Ask, Grant, GiveBack and Level are what it is told and says.
"""

from typing import TYPE_CHECKING

from batchlimit.lazy import names

if TYPE_CHECKING:
    from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
    from batchlimit.stores.async_redis import AsyncRedisStore
    from batchlimit.stores.memory import MemoryStore
    from batchlimit.stores.protocols import AsyncRemote, AsyncStore, Remote, Store
    from batchlimit.stores.redis import RedisStore
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.bucket.messages": "Ask GiveBack Grant Level",
            "batchlimit.stores.async_redis": "AsyncRedisStore",
            "batchlimit.stores.memory": "MemoryStore",
            "batchlimit.stores.protocols": "AsyncRemote AsyncStore Remote Store",
            "batchlimit.stores.redis": "RedisStore",
        },
    )

__all__ = [
    "Ask",
    "AsyncRedisStore",
    "AsyncRemote",
    "AsyncStore",
    "GiveBack",
    "Grant",
    "Level",
    "MemoryStore",
    "RedisStore",
    "Remote",
    "Store",
]
