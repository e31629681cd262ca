"""Makes the store that an address names. The others, and what they need, are not imported."""

from typing import Any

from batchlimit.base.key import check_prefix
from batchlimit.stores.client.address import Address


def open_store(
    address: Address, *, prefix: str, connect_timeout: float, deadline: float = 0.05, for_tasks: bool = False
) -> Any:
    """Return the Store at this address, or the AsyncStore. It connects at its first call."""
    if address.scheme == "memory":
        from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore

        check_prefix(prefix)
        return AsyncMemoryStore(MemoryStore()) if for_tasks else MemoryStore()
    if address.scheme == "embedded":
        from batchlimit.stores.embedded import AsyncEmbeddedStore, EmbeddedStore  # the extra may be missing

        embedded = AsyncEmbeddedStore if for_tasks else EmbeddedStore
        return embedded(prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
    if for_tasks:
        from batchlimit.stores.async_redis import AsyncRedisStore

        return AsyncRedisStore.at(address, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
    from batchlimit.stores.redis import RedisStore

    return RedisStore.at(address, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
