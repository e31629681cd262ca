"""Buckets in a real Valkey that this process starts and stops."""

import asyncio

from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.base_redis import BaseRedisStore
from batchlimit.stores.client.syntax import look, sure_redis
from batchlimit.stores.embedded_server import EmbeddedServer
from batchlimit.stores.redis import RedisStore


class _OnServer(BaseRedisStore):
    """A store with a server of its own, which starts with the store, and stops when the store is closed."""

    def __init__(self, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05) -> None:
        """Start a server and wait until it answers. For tasks too this blocks meanwhile.

        Args:
            prefix: names of buckets begin with it (text, default "batchlimit").
            connect_timeout: for opening a connection (seconds, default 1.0).
            deadline: for each read of a reply (seconds, default 0.05).

        Raises:
            ImportError: the extra `embedded` is not installed.
            StoreUnavailable: the server cannot run here.
            ValueError: the prefix is empty, or contains a brace or white space.
        """
        self._server = EmbeddedServer()
        try:
            address = sure_redis(look(self._server.url))
            connect = self._connector(address, connect_timeout, deadline)
            super().__init__(connect(), prefix=prefix)
            self._owning(connect, connect_timeout, address)
        except BaseException:
            self._server.close()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._server!r}>"

    @property
    def url(self) -> str:
        """The URL by which other processes of this user use the same buckets, while this store lives."""
        return self._server.url

    def after_fork(self) -> None:
        """In a forked child: go on as a client; the server stays the parent's."""
        self._server.after_fork()
        super().after_fork()


class EmbeddedStore(_OnServer, RedisStore):
    """A RedisStore with a server of its own. The server starts with the store, and stops when the store is closed.

    Example:
        >>> store = EmbeddedStore()
        >>> store.url.startswith("unix://")
        True
        >>> store.close()
    """

    def close(self) -> None:
        """Close the connections and stop the server."""
        super().close()
        self._server.close()


class AsyncEmbeddedStore(_OnServer, AsyncRedisStore):
    """An AsyncRedisStore with a server of its own, as EmbeddedStore."""

    async def aclose(self) -> None:
        """Close the connections and stop the server."""
        await super().aclose()
        await asyncio.to_thread(self._server.close)
