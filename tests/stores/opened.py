"""Stores of both APIs for the length of a `with`; their deadlines are long."""

import contextlib
from collections.abc import AsyncIterator, Iterator

from batchlimit.stores import AsyncRedisStore, RedisStore
from tests.awaiting import BlockingStore

APIS = ["threads", "tasks"]
LONG = 30.0
AnyStore = BlockingStore | RedisStore


@contextlib.contextmanager
def opened(api: str, url: str, prefix: str = "batchlimit", deadline: float = LONG) -> Iterator[AnyStore]:
    """A store of one of the APIS, which is asked alike for both."""
    kind = RedisStore if api == "threads" else AsyncRedisStore
    store = kind.from_url(url, prefix=prefix, connect_timeout=LONG, deadline=deadline)
    asked = store if isinstance(store, RedisStore) else BlockingStore(store)
    try:
        yield asked
    finally:
        asked.close()


@contextlib.asynccontextmanager
async def opened_for_tasks(url: str, prefix: str) -> AsyncIterator[AsyncRedisStore]:
    """A store of tasks."""
    store = AsyncRedisStore.from_url(url, prefix=prefix, connect_timeout=LONG, deadline=LONG)
    try:
        yield store
    finally:
        await store.aclose()
