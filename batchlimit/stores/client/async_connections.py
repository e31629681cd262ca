"""Connections for tasks that pause the watch of a call while they are opened: that time is not the server's."""

from typing import Any

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection

from batchlimit.stores.client.deadline import WatchPaused


class Pausing:
    """What such connections have in common; comes before a connection class of redis-py among the bases."""

    async def connect(self) -> None:
        """Connect, unless it is connected."""
        plain: Any = super()
        if not plain.is_connected:
            with WatchPaused():
                await plain.connect()


class PausingConnection(Pausing, Connection):
    """A connection over TCP."""


class PausingSSLConnection(Pausing, SSLConnection):
    """A connection over TLS."""


class PausingUnixConnection(Pausing, UnixDomainSocketConnection):
    """A connection over a unix socket."""

    port = 0  # redis-py 8.1 reads it when connecting times out
