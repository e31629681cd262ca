"""A connected socket on which one thread exchanges commands and replies within its deadline.

redis-py bounds each read by itself: a server that sends a reply byte by byte takes as long as it likes. Here all reads
and writes of an exchange share what is left of the caller's deadline. It also takes less processor time: see the table
in `__init__.py`.
"""

import select
import socket
import time
from collections.abc import Callable
from typing import Any

import redis

from batchlimit.stores.client.codec import NOTHING, PUSH, reader
from batchlimit.stores.client.deadline import current_deadline

_MOMENT = 0.001
"""Seconds that a late thread gets, because the reply may be there already."""
_MOST = 1 << 16
"""Bytes to receive at once, at most: the replies to a hundred asks."""
_SMALL = 4096
"""Bytes that a connection takes at once on which nothing else is under way: to send them takes none of the deadline."""


class RespSocket:
    """Exchanges commands and replies on one connected socket; for one thread at a time."""

    __slots__ = ("_buffer", "_default_timeout", "_is_busy", "_poll", "_reader", "_socket")

    def __init__(self, connected: socket.socket, error: Callable[[str], Exception] = redis.ResponseError) -> None:
        """Take a connected socket. Its timeout holds for callers without a deadline.

        Args:
            connected: the socket.
            error: makes an exception of the text of an error reply.
        """
        self._socket = connected
        self._default_timeout = connected.gettimeout()  # without a deadline
        self._reader = reader(error)
        self._buffer = bytearray(_MOST)  # kept: to make one for each reply takes 2 us
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._is_busy = False  # a command was sent, and its reply is not read to the end

    def __repr__(self) -> str:
        return f"<RespSocket on {self._socket}>"

    @property
    def is_ready(self) -> bool:
        """Whether the next reply answers the next command: nothing is unread, and the server has not hung up."""
        return not (self._is_busy or self._reader.has_data() or self._poll.poll(0))

    def exchange(self, packed: bytes, answers: int) -> list[Any]:
        """Send packed commands and return their replies, errors among them.

        The connection is to be closed after any exception, because the reply may still arrive.

        Args:
            packed: the commands, as they are sent.
            answers: how many replies they have.

        Raises:
            TimeoutError: the deadline is over.
            redis.ConnectionError, OSError: the connection failed.
        """
        if self._is_busy:  # the caller before was interrupted: the next reply is not ours
            raise ConnectionResetError("a reply on this connection was left unread")
        self._is_busy = True
        until = current_deadline()  # read once: a process that was stopped meanwhile keeps its deadline
        self._set_timeout(until)
        self._socket.sendall(packed)
        if len(packed) > _SMALL:
            self._set_timeout(until)
        replies: list[Any] = []
        self._receive()
        while len(replies) < answers:
            reply = self._reader.gets()
            if reply is NOTHING:
                self._set_timeout(until, is_first=False)
                self._receive()
            elif not isinstance(reply, PUSH):
                replies.append(reply)
        self._is_busy = False
        return replies

    def _receive(self) -> None:
        size = self._socket.recv_into(self._buffer)
        if not size:
            raise redis.ConnectionError("Connection closed by server.")
        self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]  # any buffer

    def _set_timeout(self, until: float | None, is_first: bool = True) -> None:
        """Let the next operation end by the deadline; without one, after the socket's own timeout."""
        timeout = self._default_timeout
        if until is not None:
            left = until - time.monotonic()
            # Only the first read gets the moment: a server that sends byte by byte would have it for each.
            if left < 0.0 and not is_first:
                raise TimeoutError("timed out")
            left = max(left, _MOMENT)
            timeout = left if timeout is None else min(left, timeout)
        self._socket.settimeout(timeout)
