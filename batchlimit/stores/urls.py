"""Which store a URL names."""

from urllib.parse import urlsplit

from batchlimit.stores.base import Store
from batchlimit.stores.memory import MemoryStore
from batchlimit.stores.redis import RedisStore

_REDIS = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
"""Schemes that a Redis client serves, and what redis-py calls them."""


def open_store(url: str, *, prefix: str, connect_timeout: float) -> Store:
    """Return the store at `url`; ValueError for a scheme that nobody knows. Nothing is connected to yet."""
    if not isinstance(url, str):
        raise TypeError(f"a store's URL must be a str, not {url!r}")
    scheme, colon, rest = url.partition(":")
    if colon and scheme in _REDIS:
        return RedisStore.from_url(f"{_REDIS[scheme]}:{rest}", prefix=prefix, connect_timeout=connect_timeout)
    if scheme == "memory":
        return MemoryStore()
    if scheme == "embedded":
        from batchlimit.stores.embedded import EmbeddedStore  # the extra may be missing

        return EmbeddedStore(prefix=prefix)
    known = ", ".join(f"{each}://" for each in (*_REDIS, "memory", "embedded"))
    raise ValueError(f"no store for {urlsplit(url).scheme or 'a URL without a scheme'!r}: known are {known}")
