"""Connections that are in a hurry when their caller is: they end in time, and do not begin while there is one.

A timeout of redis-py holds for each read alone: a server that dribbles one byte at a time, or a reply in many pieces,
takes as long as it likes. Here each read and write has what is left of the caller's time. And a new connection may take
any time (names are resolved without a timeout at all), so in a hurry there is none.
"""

import socket
from collections.abc import Callable
from time import monotonic
from typing import Any, Self

from redis.connection import Connection, UnixDomainSocketConnection

from batchlimit.stores.hurry import NotPrompt, hurrying

_SLACK = 0.001
"""How late an operation may end (s), so that the answer to what was just sent needs no timeout of its own, which is a
call of the system. A thread that is woken in time may run that much later anyway."""

_recv, _recv_into, _sendall = socket.socket.recv, socket.socket.recv_into, socket.socket.sendall
_settimeout = socket.socket.settimeout


class PromptSocket(socket.socket):
    """A connected socket, each operation of which ends when its thread's hurry does, or its own timeout before."""

    __slots__ = ("_calm", "_now", "_unread")
    _unread: bool  # something was sent, and nothing received since
    _calm: float | None  # the timeout for who is in no hurry
    _now: float | None  # the one that is set

    @classmethod
    def adopt(cls, plain: socket.socket) -> Self:
        """Take the connection over; nothing is left of `plain`."""
        calm = plain.gettimeout()
        mine = cls(plain.family, plain.type, plain.proto, plain.detach())
        mine.settimeout(calm)
        mine._unread = False
        return mine

    def settimeout(self, value: float | None) -> None:
        """Set the timeout for whoever is in no hurry."""
        self._calm = self._now = value
        _settimeout(self, value)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive; what redis-py calls where it has hiredis."""
        self._hasten(self._unread)
        self._unread = False
        return _recv_into(self, buffer, nbytes, flags)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Receive; what redis-py calls where it has not."""
        self._hasten(self._unread)
        self._unread = False
        return _recv(self, bufsize, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all of it; a timeout of this method holds for all."""
        if self._unread:  # who sent before was interrupted: the answer to come is not ours
            raise ConnectionResetError("a reply on this connection was left unread")
        self._hasten()
        self._unread = True
        _sendall(self, data, flags)

    def _hasten(self, is_first: bool = True) -> None:
        """Let the next operation last no longer than the hurry; without one, no longer than ever."""
        fit, now = self._calm, self._now
        if (until := hurrying()) is not None:
            # At the least a moment: a thread that had to wait for others may find its answer lying ready.
            # But that is one moment: who dribbles a reply would have one for each byte.
            left = until - monotonic()
            if left < _SLACK:
                if not is_first and left < 0.0 and fit != 0.0:
                    raise TimeoutError("timed out")
                left = _SLACK
            if fit is None or left < fit:
                fit = left
        if fit != now and (fit is None or now is None or fit < _SLACK or not 0.0 <= now - fit < _SLACK):
            self._now = fit
            _settimeout(self, fit)


class PromptConnection(Connection):
    """A connection over TCP."""

    def _connect(self) -> socket.socket:
        return _adopted(super()._connect)


class PromptUnixConnection(UnixDomainSocketConnection):
    """A connection over a unix socket."""

    port = 0  # redis-py 8.1 looks for it where connecting takes too long

    def _connect(self) -> socket.socket:
        return _adopted(super()._connect)


def _adopted(connect: Callable[[], socket.socket]) -> socket.socket:
    if hurrying() is not None:
        raise NotPrompt
    return PromptSocket.adopt(connect())
