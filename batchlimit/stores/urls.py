"""Which store a URL names."""

from urllib.parse import urlsplit

from redis.connection import parse_url

from batchlimit.stores.async_memory import AsyncMemoryStore
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.base import AsyncStore, Store
from batchlimit.stores.memory import MemoryStore
from batchlimit.stores.redis import RedisStore

_REDIS = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
"""Schemes that a Redis client serves, and what redis-py calls them."""
_OWN = ("memory", "embedded")


def open_store(url: str, *, prefix: str, connect_timeout: float) -> Store:
    """Return the store at `url`; ValueError for a scheme that nobody knows. Nothing is connected to yet."""
    match _scheme(url):
        case "memory":
            return MemoryStore()
        case "embedded":
            from batchlimit.stores.embedded import EmbeddedStore  # the extra may be missing

            return EmbeddedStore(prefix=prefix)
        case _:
            return RedisStore.from_url(_redis_url(url), prefix=prefix, connect_timeout=connect_timeout)


def open_async_store(url: str, *, prefix: str, connect_timeout: float) -> AsyncStore:
    """Return the store at `url` for tasks, as `open_store` does for threads."""
    match _scheme(url):
        case "memory":
            return AsyncMemoryStore(MemoryStore())
        case "embedded":
            from batchlimit.stores.async_embedded import AsyncEmbeddedStore  # the extra may be missing

            return AsyncEmbeddedStore(prefix=prefix)
        case _:
            return AsyncRedisStore.from_url(_redis_url(url), prefix=prefix, connect_timeout=connect_timeout)


def _scheme(url: object) -> str:
    if not isinstance(url, str):
        raise TypeError(f"a store's URL must be a str, not a {type(url).__name__}")
    scheme, colon, _ = url.partition(":")
    if (colon and scheme in _REDIS) or scheme in _OWN:
        return scheme
    known = ", ".join(f"{each}://" for each in (*_REDIS, *_OWN))
    raise ValueError(f"no store for {urlsplit(url).scheme or 'a URL without a scheme'!r}: known are {known}")


def _redis_url(url: str) -> str:
    scheme, _, rest = url.partition(":")
    known = f"{_REDIS[scheme]}:{rest}"
    if not _is_readable(known):
        raise ValueError(
            f"this {scheme} URL cannot be read; in a password, %-encode what is special (urllib.parse.quote)"
        )
    return known


def _is_readable(url: str) -> bool:
    """Look at what redis-py makes of it, whose error may say a part of the password: "Port could not be cast"."""
    try:
        parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        return False
    return True
