"""Buckets in a real Valkey that this process starts and stops."""

import asyncio
from typing import Any

from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.embedded_server import EmbeddedServer
from batchlimit.stores.redis import RedisStore


class EmbeddedStore(RedisStore):
    """A RedisStore with a server of its own. The server starts with the store, and stops when the store is closed.

    Example:
        >>> store = EmbeddedStore()
        >>> store.url.startswith("unix://")
        True
        >>> store.close()
    """

    def __init__(self, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05) -> None:
        """Start a server and wait until it answers.

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
        options = {"prefix": prefix, "connect_timeout": connect_timeout, "deadline": deadline}
        vars(self).update(_opened(self._server, RedisStore, options))  # this is that store from now on, with a server

    def __repr__(self) -> str:
        return f"<EmbeddedStore on {self._server!r}>"

    @property
    def url(self) -> str:
        """The URL by which other processes of this user use the same buckets, while this store lives."""
        return self._server.url

    def after_fork(self) -> None:
        """In a forked child: go on as a client; the server stays the parent's."""
        self._server.after_fork()
        super().after_fork()

    def close(self) -> None:
        """Close the connections and stop the server."""
        super().close()
        self._server.close()


class AsyncEmbeddedStore(AsyncRedisStore):
    """An AsyncRedisStore with a server of its own, as EmbeddedStore. Making one blocks while the server starts."""

    def __init__(self, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05) -> None:
        """Start a server and wait until it answers; see EmbeddedStore."""
        self._server = EmbeddedServer()
        options = {"prefix": prefix, "connect_timeout": connect_timeout, "deadline": deadline}
        vars(self).update(_opened(self._server, AsyncRedisStore, options))

    def __repr__(self) -> str:
        return f"<AsyncEmbeddedStore on {self._server!r}>"

    def after_fork(self) -> None:
        """In a forked child: go on as a client; the server stays the parent's."""
        self._server.after_fork()
        super().after_fork()

    async def aclose(self) -> None:
        """Close the connections and stop the server."""
        await super().aclose()
        await asyncio.to_thread(self._server.close)


def _opened(
    server: EmbeddedServer, kind: type[RedisStore | AsyncRedisStore], options: dict[str, Any]
) -> dict[str, Any]:
    """Return what a store on this server is made of; if none can be opened, stop the server."""
    try:
        return vars(kind.from_url(server.url, **options))
    except BaseException:
        server.close()
        raise
