"""Connections that redis-py opens and greets, and on which a RespSocket then reads and writes.

Opening one may take any time, because resolving a name has no timeout. So none is opened within a `deadline_scope`.
"""

import socket
from typing import Any

from redis._parsers import BaseParser
from redis.connection import Connection, UnixDomainSocketConnection

from batchlimit.stores.client.deadline import NeedsConnection, current_deadline
from batchlimit.stores.client.resp_socket import RespSocket


class Deadlined:
    """What such connections have in common; comes before a connection class of redis-py among the bases."""

    resp: RespSocket | None = None
    """Set while the connection is open."""

    def _connect(self) -> socket.socket:
        if current_deadline() is not None:
            raise NeedsConnection
        plain: Any = super()
        connected: socket.socket = plain._connect()
        self.resp = RespSocket(connected, BaseParser.parse_error)
        return connected

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        """Close the connection. The RespSocket is not used again, even if closing fails."""
        self.resp = None
        plain: Any = super()
        plain.disconnect(*args, **kwargs)


class DeadlineConnection(Deadlined, Connection):
    """A connection over TCP."""


class DeadlineUnixConnection(Deadlined, UnixDomainSocketConnection):
    """A connection over a unix socket."""

    port = 0  # redis-py 8.1 reads it when connecting times out
