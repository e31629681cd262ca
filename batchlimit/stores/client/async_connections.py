"""Connections for tasks that tell the watch of a call while they are made: that is not the server's time."""

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection

from batchlimit.stores.client.deadline import Unhurried


class CalmConnection(Connection):
    """A connection over TCP."""

    async def connect(self) -> None:
        """Connect, if need be."""
        if not self.is_connected:
            with Unhurried():
                await super().connect()  # type: ignore[no-untyped-call]


class CalmSSLConnection(SSLConnection):
    """A connection over TLS."""

    async def connect(self) -> None:
        """Connect, if need be."""
        if not self.is_connected:
            with Unhurried():
                await super().connect()  # type: ignore[no-untyped-call]


class CalmUnixConnection(UnixDomainSocketConnection):
    """A connection over a unix socket."""

    port = 0  # redis-py 8.1 looks for it where connecting takes too long

    async def connect(self) -> None:
        """Connect, if need be."""
        if not self.is_connected:
            with Unhurried():
                await super().connect()  # type: ignore[no-untyped-call]
