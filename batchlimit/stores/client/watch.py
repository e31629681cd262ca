"""The watch of a call that a task makes: it stands still while the call waits for a connection, or opens one.

That time is not the server's. Connecting may take any time, and a deadline is for an answer.
"""

from contextvars import ContextVar
from typing import Any, Protocol

import redis  # noqa: F401  first: redis-py's modules import each other, and two threads could import them at once
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection


class Watch(Protocol):
    """Measures how long a task's call has waited for the server."""

    def pause(self) -> None:
        """The call waits for a connection, or opens one."""
        ...

    def resume(self) -> None:
        """The call has a connection: from here on the time is the server's."""
        ...


WATCH: ContextVar[Watch | None] = ContextVar("batchlimit_watch", default=None)
"""The watch of the call that this task makes."""


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


class PausingConnection(Pausing, Connection):
    """A connection over TCP."""


class PausingSSLConnection(Pausing, SSLConnection):
    """A connection over TLS."""


class PausingUnixConnection(Pausing, UnixDomainSocketConnection):
    """A connection over a unix socket."""

    port = 0  # redis-py 8.1 reads it when connecting times out
