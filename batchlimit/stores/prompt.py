"""Connections that are in a hurry when their caller is: they end in time, and do not begin while there is one.

A timeout of redis-py holds for each read alone: a server that dribbles one byte at a time, or a reply in many pieces,
takes as long as it likes. Here each read and write has what is left of the caller's time. And a new connection may take
any time (names are resolved without a timeout at all), so in a hurry there is none.
"""

import socket
import time
from collections.abc import Callable
from typing import Any, Self

from redis.connection import Connection, UnixDomainSocketConnection

from batchlimit.stores.hurry import NotPrompt, hurrying


class PromptSocket(socket.socket):
    """A connected socket, each operation of which ends when its thread's hurry does, or its own timeout before."""

    __slots__ = ("_calm",)
    _calm: float | None

    @classmethod
    def adopt(cls, plain: socket.socket) -> Self:
        """Take the connection over; nothing is left of `plain`."""
        calm = plain.gettimeout()
        mine = cls(plain.family, plain.type, plain.proto, plain.detach())
        mine.settimeout(calm)
        return mine

    def settimeout(self, value: float | None) -> None:
        """Set the timeout for whoever is in no hurry."""
        self._calm = value
        super().settimeout(value)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive; what redis-py calls where it has hiredis."""
        if (until := hurrying()) is None:
            return super().recv_into(buffer, nbytes, flags)
        self._hasten(until)
        try:
            return super().recv_into(buffer, nbytes, flags)
        finally:
            super().settimeout(self._calm)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Receive; what redis-py calls where it has not."""
        if (until := hurrying()) is None:
            return super().recv(bufsize, flags)
        self._hasten(until)
        try:
            return super().recv(bufsize, flags)
        finally:
            super().settimeout(self._calm)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all of it; a timeout of this method holds for all."""
        if (until := hurrying()) is None:
            return super().sendall(data, flags)
        self._hasten(until)
        try:
            return super().sendall(data, flags)
        finally:
            super().settimeout(self._calm)

    def _hasten(self, until: float) -> None:
        """For one operation, wait no longer than the hurry lasts. One that does not wait at all stays so."""
        left = until - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("the caller's time is up")
        if self._calm is None or left < self._calm:
            super().settimeout(left)


class PromptConnection(Connection):
    """A connection over TCP."""

    def _connect(self) -> socket.socket:
        return _adopted(super()._connect)


class PromptUnixConnection(UnixDomainSocketConnection):
    """A connection over a unix socket."""

    def _connect(self) -> socket.socket:
        return _adopted(super()._connect)


def _adopted(connect: Callable[[], socket.socket]) -> socket.socket:
    if hurrying() is not None:
        raise NotPrompt
    return PromptSocket.adopt(connect())
