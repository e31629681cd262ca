"""What a script publishes to one limiter instance, read on a connection of its own."""

import socket
from collections import deque
from typing import Any

import redis

from batchlimit.bucket.slot_messages import SlotPush
from batchlimit.stores.client.deadline import Deadlined
from batchlimit.stores.client.scripts import NOTHING, read_push, reader

_CONFIRMED = 5.0
"""Seconds that the store may take to confirm, also where the client has no timeout of its own."""
_MOST = 1 << 16
"""Bytes to receive at once, at most."""


class Subscription:
    """One channel; for one thread.

    redis-py opens the connection and subscribes. Messages are then read from the socket itself, where that is one of
    ours: redis-py takes 150 us for each, which is half a round trip of who waits.
    """

    def __init__(self, pubsub: Any, channel: str) -> None:
        self._pubsub, self._channel = pubsub, channel
        self._socket: socket.socket | None = None
        self._reader = reader(redis.ResponseError)
        self._buffer = bytearray(_MOST)
        self._read: deque[Any] = deque()

    def __repr__(self) -> str:
        return f"<Subscription to {self._channel}>"

    def open(self) -> None:
        """Connect and subscribe; return when the store has confirmed it. Earlier messages are lost."""
        self._pubsub.subscribe(self._channel)
        if self._pubsub.get_message(timeout=_CONFIRMED) is None:
            raise redis.TimeoutError("the store did not confirm the subscription")
        connection: Any = self._pubsub.connection
        self._socket = connection._sock if issubclass(type(connection), Deadlined) else None

    def read(self, seconds: float) -> tuple[str, SlotPush] | None:
        """Return the next push and the name of its limit; None if there was none for so many seconds."""
        if self._socket is not None:
            return self._from_socket(self._socket, seconds)
        message = self._pubsub.get_message(timeout=seconds)
        return read_push(message["data"]) if message and message["type"] == "message" else None

    def close(self) -> None:
        """Disconnect."""
        self._pubsub.close()

    def _from_socket(self, connected: socket.socket, seconds: float) -> tuple[str, SlotPush] | None:
        if not self._read:
            connected.settimeout(seconds)
            try:
                size = connected.recv_into(self._buffer)
            except TimeoutError:
                return None
            if not size:
                raise redis.ConnectionError("Connection closed by server.")
            self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]  # any buffer
            while (message := self._reader.gets()) is not NOTHING:
                self._read.append(message)
        message = self._read.popleft() if self._read else [""]
        return read_push(message[-1]) if message[0] in (b"message", "message") else None
