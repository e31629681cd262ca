"""Which store a URL names."""

from batchlimit.stores.address import REDIS, TOPOLOGIES
from batchlimit.stores.async_memory import AsyncMemoryStore
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.base import AsyncStore, Store
from batchlimit.stores.memory import MemoryStore
from batchlimit.stores.redis import RedisStore

_OWN = ("memory", "embedded")


def open_store(url: str, *, prefix: str, connect_timeout: float, deadline: float = 0.05) -> Store:
    """Return the store at `url`; ValueError for a scheme that nobody knows. Nothing is connected to yet."""
    match _scheme(url):
        case "memory":
            return MemoryStore()
        case "embedded":
            from batchlimit.stores.embedded import EmbeddedStore  # the extra may be missing

            return EmbeddedStore(prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
        case _:
            return RedisStore.from_url(url, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)


def open_async_store(url: str, *, prefix: str, connect_timeout: float, deadline: float = 0.05) -> AsyncStore:
    """Return the store at `url` for tasks, as `open_store` does for threads."""
    match _scheme(url):
        case "memory":
            return AsyncMemoryStore(MemoryStore())
        case "embedded":
            from batchlimit.stores.async_embedded import AsyncEmbeddedStore  # the extra may be missing

            return AsyncEmbeddedStore(prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
        case _:
            return AsyncRedisStore.from_url(url, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)


def _scheme(url: object) -> str:
    if not isinstance(url, str):
        raise TypeError(f"a store's URL must be a str, not {type(url).__name__}")  # it may show a password
    scheme, colon, _ = url.partition(":")
    base, _, topology = scheme.partition("+")
    if (colon and base in REDIS and topology in ("", *TOPOLOGIES)) or scheme in _OWN:
        return scheme
    known = ", ".join(f"{each}://" for each in (*REDIS, *(f"redis+{each}" for each in TOPOLOGIES), *_OWN))
    raise ValueError(f"no store for {scheme if colon else 'a URL without a scheme'!r}: known are {known}")
