"""The deadline of a call in a thread, and the watch of a task's; connections that keep to them.

redis-py bounds each read by itself: a server that sends a reply byte by byte takes as long as it likes. Here all reads
and writes of an exchange share what is left of the caller's deadline. It also takes less processor time: see the table
in `__init__.py`. Opening a connection may take any time, because resolving a name has no timeout. So none is opened
while CALL has a deadline: redis-py opens and greets them elsewhere, and a RespSocket then reads and writes on them.

A task's call has a watch, which stands still while the call waits for a connection, or opens one. A deadline is for an
answer, and that time is not the server's.
"""

import math
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import redis
from redis._parsers import BaseParser
from redis.asyncio import connection as for_tasks
from redis.connection import Connection, UnixDomainSocketConnection

from batchlimit.stores.client.scripts import NOTHING, PUSH, reader

_STALE = 1.0
"""Seconds after its end from which a deadline has no effect: an interrupt left it behind."""


class NeedsConnection(Exception):
    """The call would have to connect first, which may take longer than its deadline. Nothing was sent."""


class _Call(threading.local):
    until: float | None = None


CALL = _Call()
"""Bounds each call of a prompt store in this thread; one that would have to connect raises NeedsConnection. `until` is
the instant (seconds of time.monotonic()) by which each call ends; None: it has no deadline."""


def current_deadline() -> float | None:
    """Return the instant by which this thread's call must end; None if it has no deadline."""
    until = CALL.until
    return None if until is None or until + _STALE < time.monotonic() else until


_MOMENT = 0.001
"""Seconds that a late thread gets, because the reply may be there already."""
_MOST = 1 << 16
"""Bytes to receive at once, at most: the replies to a hundred asks."""


class RespSocket:
    """Exchanges commands and replies on one connected socket; for one thread at a time.

    From the first exchange on the socket does not block: this waits for it. A socket with a timeout would look before
    it sends, though it can, and would be told its timeout anew each time. That is one system call in three.
    """

    __slots__ = ("_buffer", "_default_timeout", "_is_busy", "_poll", "_reader", "_socket")

    def __init__(self, connected: socket.socket, error: Callable[[str], Exception] = redis.ResponseError) -> None:
        """Take a connected socket, whose timeout holds for callers without a deadline; `error` makes exceptions."""
        self._socket = connected
        timeout = connected.gettimeout()
        self._default_timeout = math.inf if timeout is None else timeout  # without a deadline
        self._reader = reader(error)
        self._buffer = bytearray(_MOST)  # kept: to make one for each reply takes 2 us
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._is_busy = False  # a command was sent, and its reply is not read to the end

    @property
    def is_ready(self) -> bool:
        """Whether the next reply answers the next command: nothing is unread, and the server has not hung up."""
        return not (self._is_busy or self._reader.has_data() or self._poll.poll(0))

    def exchange(self, packed: bytes, answers: int) -> list[Any]:
        """Send packed commands and return their replies, errors among them; TimeoutError: the deadline is over.

        The connection is to be closed after any exception, because the reply may still arrive.
        """
        if self._is_busy:  # the caller before was interrupted: the next reply is not ours
            raise ConnectionResetError("a reply on this connection was left unread")
        self._is_busy = True
        until = current_deadline()  # read once: a process that was stopped meanwhile keeps its deadline
        self._send(packed, until)
        # Only the first read gets the moment: a server that sends byte by byte would have it for each.
        self._receive(until, _MOMENT)
        replies: list[Any] = []
        while True:
            reply = self._reader.gets()
            if reply is NOTHING:
                self._receive(until)
            elif not isinstance(reply, PUSH):
                replies.append(reply)
                if len(replies) == answers:
                    self._is_busy = False
                    return replies

    def read(self, seconds: float) -> Any:
        """Return what a server publishes; None if there was nothing for so many seconds."""
        until = time.monotonic() + seconds
        while (message := self._reader.gets()) is NOTHING:
            try:
                self._receive(until)
            except TimeoutError:
                if time.monotonic() >= until:  # else that was the socket's own timeout
                    return None
        return message

    def _send(self, packed: bytes, until: float | None) -> None:
        if self._socket.timeout != 0.0:  # redis-py has greeted the server by now, and blocked
            self._socket.setblocking(False)
        left: bytes | memoryview = packed
        while left:
            try:
                sent = self._socket.send(left)
            except BlockingIOError:
                sent = 0
            if sent == len(left):
                return
            left = memoryview(left)[sent:]
            room = select.poll()
            room.register(self._socket, select.POLLOUT)
            self._wait(room, until, _MOMENT)

    def _receive(self, until: float | None, least: float = 0.0) -> None:
        self._wait(self._poll, until, least)
        size = self._socket.recv_into(self._buffer)
        if not size:
            raise redis.ConnectionError("Connection closed by server.")
        self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]  # any buffer

    def _wait(self, poll: select.poll, until: float | None, least: float) -> None:
        """Wait until the deadline, and so many seconds at least; without one, for the socket's own timeout."""
        left = self._default_timeout
        if until is not None:
            left = min(left, max(until - time.monotonic(), least))
        if left < 0.0 or not poll.poll(1000 * left if left < math.inf else None):
            raise TimeoutError("timed out")


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

    def hang_up(self) -> None:
        """End what another thread waits for here. It closes the connection then: the number that it polls stays its."""
        with suppress(AttributeError, OSError):  # it is not open
            self._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]  # of redis-py

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


WATCH: ContextVar[Any] = ContextVar("batchlimit_watch", default=None)
"""What measures how long this task's call has waited for the server: `pause` while it waits for a connection or opens
one, `resume` from when it has one."""


class WatchPaused:
    """`with WatchPaused():` the time in this block is not the server's."""

    __slots__ = ("_watch",)

    def __enter__(self) -> None:
        self._watch = WATCH.get()
        if self._watch is not None:
            self._watch.pause()

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.resume()


class Pausing:
    """What such connections have in common; comes before a connection class of redis-py among the bases."""

    async def connect(self) -> None:
        """Connect, unless it is connected."""
        plain: Any = super()
        if not plain.is_connected:
            with WatchPaused():
                await plain.connect()


class PausingConnection(Pausing, for_tasks.Connection):
    """A connection over TCP."""


class PausingSSLConnection(Pausing, for_tasks.SSLConnection):
    """A connection over TLS."""


class PausingUnixConnection(Pausing, for_tasks.UnixDomainSocketConnection):
    """A connection over a unix socket."""

    port = 0  # redis-py 8.1 reads it when connecting times out
