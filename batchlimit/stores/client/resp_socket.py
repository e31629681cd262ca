"""A connected socket on which a caller speaks by itself, and is answered in its own time.

What redis-py does for a command takes longer than to send it and to read the answer: 20 us of the processor, of which
these are 7. And a timeout of redis-py holds for each read alone: a server that dribbles one byte at a time, or a reply
in many pieces, takes as long as it likes. Here each read and write has what is left of the caller's hurry.
"""

import select
import socket
import time
from collections.abc import Callable
from typing import Any

import redis

from batchlimit.stores.client.codec import NOTHING, PUSH, reader
from batchlimit.stores.client.deadline import hurrying

_SLACK = 0.001
"""How late an operation may end (s), so that the answer to what was just sent needs no timeout of its own, which is a
call of the system. A thread that is woken in time may run that much later anyway."""
_MOST = 1 << 16
"""Bytes to receive at once, at the most: the answers to a hundred asks."""


class RespSocket:
    """What is said on one connected socket; for one thread at a time."""

    __slots__ = ("_amid", "_calm", "_fit", "_look", "_reader", "_socket")

    def __init__(self, connected: socket.socket, error: Callable[[str], Exception] = redis.ResponseError) -> None:
        """`error` makes of what a server says in an error what it means. The socket's timeout is for who has time."""
        self._socket = connected
        self._calm = self._fit = connected.gettimeout()  # for who is in no hurry, and the one that is set
        self._reader = reader(error)
        self._look = select.poll()
        self._look.register(connected, select.POLLIN)
        self._amid = False  # something was asked, and not all of the answer was read

    def __repr__(self) -> str:
        return f"<Channel on {self._socket}>"

    @property
    def is_ready(self) -> bool:
        """Whether what is said next is answered next: nothing is unread, nor has the server ended the connection."""
        return not (self._amid or self._reader.has_data() or self._look.poll(0))

    def exchange(self, packed: bytes, answers: int) -> list[Any]:
        """Send packed commands, and return so many answers, errors among them.

        Raises what befalls the connection, a TimeoutError too; then it is to be closed, as after any interrupt.
        """
        if self._amid:  # who asked before was interrupted: the answer to come is not ours
            raise ConnectionResetError("a reply on this connection was left unread")
        self._amid = True
        until = hurrying()  # once: a process that was frozen amid this is in a hurry all the same
        self._hasten(until)
        self._socket.sendall(packed)
        self._hasten(until)
        replies: list[Any] = []
        self._receive()
        while len(replies) < answers:
            reply = self._reader.gets()
            if reply is NOTHING:
                self._hasten(until, is_first=False)
                self._receive()
            elif not isinstance(reply, PUSH):
                replies.append(reply)
        self._amid = False
        return replies

    def _receive(self) -> None:
        data = self._socket.recv(_MOST)
        if not data:
            raise redis.ConnectionError("Connection closed by server.")
        self._reader.feed(data)

    def _hasten(self, until: float | None, is_first: bool = True) -> None:
        """Let the next operation last no longer than the hurry; without one, no longer than ever."""
        fit, now = self._calm, self._fit
        if until is not None:
            left = until - time.monotonic()
            # At the least a moment: a thread that had to wait for others may find its answer lying ready.
            # But that is one moment: who dribbles a reply would have one for each byte.
            if left < _SLACK:
                if left < 0.0 and not is_first:
                    raise TimeoutError("timed out")
                left = _SLACK
            if fit is None or left < fit:
                fit = left
        if fit != now and (fit is None or now is None or not 0.0 <= now - fit < _SLACK):
            self._fit = fit
            self._socket.settimeout(fit)
