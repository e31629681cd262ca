"""Connections that redis-py makes, and that their caller speaks on by itself: each has a Channel once it has greeted.

A new connection may take any time (names are resolved without a timeout at all), so in a hurry none is made.
"""

import socket
from typing import TYPE_CHECKING, Any

from redis.connection import Connection, UnixDomainSocketConnection

from batchlimit.stores.channel import Channel
from batchlimit.stores.hurry import NotPrompt, hurrying

if TYPE_CHECKING:
    from redis.connection import AbstractConnection as _Connection
else:
    _Connection = object


class Prompt(_Connection):
    """What such connections have in common."""

    channel: Channel | None = None
    """There is one while it is connected."""

    def _connect(self) -> socket.socket:
        if hurrying() is not None:
            raise NotPrompt
        connected: socket.socket = super()._connect()
        self.channel = Channel(connected, self._parser.parse_error)  # of this name from redis-py 5.2 to 8.1
        return connected

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        """Use the channel no more, whatever becomes of the socket."""
        self.channel = None
        super().disconnect(*args, **kwargs)


class PromptConnection(Prompt, Connection):
    """A connection over TCP."""


class PromptUnixConnection(Prompt, UnixDomainSocketConnection):
    """A connection over a unix socket."""

    port = 0  # redis-py 8.1 looks for it where connecting takes too long
