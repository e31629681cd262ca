"""Makes the store that an address names. The others, and what they need, are not imported."""

from batchlimit.quota.key import check_prefix
from batchlimit.stores.client.address import Address
from batchlimit.stores.protocols import AsyncStore, Store


def open_store(address: Address, *, prefix: str, connect_timeout: float, deadline: float = 0.05) -> Store:
    """Return the store at this address. It connects at its first call."""
    match address.scheme:
        case "memory":
            from batchlimit.stores.memory import MemoryStore

            check_prefix(prefix)
            return MemoryStore()
        case "embedded":
            from batchlimit.stores.embedded import EmbeddedStore  # the extra may be missing

            return EmbeddedStore(prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
        case _:
            from batchlimit.stores.redis import RedisStore

            return RedisStore.at(address, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)


def open_async_store(address: Address, *, prefix: str, connect_timeout: float, deadline: float = 0.05) -> AsyncStore:
    """Return the store at this address for tasks, as `open_store` does for threads."""
    match address.scheme:
        case "memory":
            from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore

            check_prefix(prefix)
            return AsyncMemoryStore(MemoryStore())
        case "embedded":
            from batchlimit.stores.embedded import AsyncEmbeddedStore  # the extra may be missing

            return AsyncEmbeddedStore(prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
        case _:
            from batchlimit.stores.async_redis import AsyncRedisStore

            return AsyncRedisStore.at(address, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
