"""Connections that redis-py makes, and on which their caller speaks by itself: by a Channel.

A new connection may take any time (names are resolved without a timeout at all), so in a hurry none is made.
"""

import socket
from typing import Any

from redis._parsers import BaseParser
from redis.connection import Connection, UnixDomainSocketConnection

from batchlimit.stores.client.deadline import NotPrompt, hurrying
from batchlimit.stores.client.resp_socket import RespSocket


class Deadlined:
    """What such connections have in common; to stand before one of redis-py's among the bases."""

    channel: RespSocket | None = None
    """There is one while it is connected; whoever uses it has connected."""

    def _connect(self) -> socket.socket:
        if hurrying() is not None:
            raise NotPrompt
        plain: Any = super()
        connected: socket.socket = plain._connect()
        self.channel = RespSocket(connected, BaseParser.parse_error)
        return connected

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        """Use the channel no more, whatever becomes of the socket."""
        self.channel = None
        plain: Any = super()
        plain.disconnect(*args, **kwargs)


class DeadlineConnection(Deadlined, Connection):
    """A connection over TCP."""


class DeadlineUnixConnection(Deadlined, UnixDomainSocketConnection):
    """A connection over a unix socket."""

    port = 0  # redis-py 8.1 looks for it where connecting takes too long
