"""How a store talks to one server by a client of its own: on connections that it keeps, and uses directly.

`execute_command` has work to do that is for nobody here: it takes a connection out of a pool and puts it back, each
with a lock, a set and records for whoever observes it, and calls through a retry that never retries. So a connection,
once made, lies in a list between two calls; what makes it, and greets, is redis-py's. What is said on it then goes by
its Channel; with TLS or health checks by redis-py.
"""

import os
from collections.abc import Sequence
from typing import Any

import redis
from redis.exceptions import NoScriptError, ResponseError

from batchlimit.stores.client.codec import command
from batchlimit.stores.client.connections import Deadlined
from batchlimit.stores.client.diagnosis import FAILURES, PASSING, code_of
from batchlimit.stores.client.resp_socket import RespSocket
from batchlimit.stores.client.scripts import digest, script
from batchlimit.stores.client.transport import Arguments, ServerTransport

Calls = Sequence[tuple[str, Arguments]]
"""The bucket of each call, and what its script is told."""


class DirectTransport(ServerTransport):
    """A Line to the one server of a redis.Redis that nobody else uses; it has as many connections as calls at once."""

    def __init__(self, client: "redis.Redis") -> None:
        super().__init__(client)
        self._pid = os.getpid()
        self._made: list[Any] = []
        self._idle: list[Any] = []  # the last one that was used serves first; to take or add one needs no lock

    def run(self, name: str, bucket: str, arguments: Arguments) -> Any:
        (reply,) = self._exchange(_command(name, bucket, arguments), 1)
        if isinstance(reply, NoScriptError):
            (reply,) = self.run_many(name, [(bucket, arguments)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def run_many(self, name: str, calls: Calls) -> list[Any]:
        """Run one of SCRIPTS for several buckets in one round trip; return each reply, or the error in its place.

        Where the script is lost it is loaded, and asked once more for those whom that concerns. Raises what befalls the
        connection: then nobody has an answer.
        """
        commands = [_command(name, *each) for each in calls]
        replies = self._exchange(b"".join(commands), len(commands))
        if lost := [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]:
            load = command("SCRIPT", "LOAD", script(name))
            loaded, *again = self._exchange(b"".join([load, *(commands[i] for i in lost)]), 1 + len(lost))
            for i, reply in zip(lost, again, strict=True):
                replies[i] = loaded if isinstance(loaded, Exception) else reply
        return replies

    def mend(self, error: Exception) -> None:
        if code_of(error) in PASSING:
            idle, self._idle = self._idle, []
            for each in idle:
                each.disconnect()
            self._idle.extend(idle)

    def close(self) -> None:
        for each in self._made:
            each.disconnect()
        super().close()

    def _exchange(self, packed: bytes, answers: int) -> list[Any]:
        """Say something on a connection, and hear so many answers, errors among them; raises what befalls it.

        Whoever is interrupted amid that leaves the connection to nobody.
        """
        connection = self._take()
        try:
            if isinstance(connection, Deadlined):
                return _by_channel(connection, packed, answers)
            _make_ready(connection)
            connection.send_packed_command([packed])
            return [_read(connection) for _ in range(answers)]
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._rest(connection)

    def _rest(self, connection: Any) -> None:
        """Lay it where the next call finds it; below all others if it is not connected: it may be that it cannot be."""
        if connection._sock is None:
            self._idle.insert(0, connection)
        else:
            self._idle.append(connection)

    def _take(self) -> Any:
        if os.getpid() != self._pid:  # a fork that nobody told us of: what is connected is the parent's
            self.client.connection_pool.reset()
            self._pid, self._made, self._idle = os.getpid(), [], []
        try:
            return self._idle.pop()
        except IndexError:
            made = self.client.connection_pool.make_connection()
            self._made.append(made)
            return made


def _by_channel(connection: Any, packed: bytes, answers: int) -> list[Any]:
    """Speak by what the connection has, and on a new one where that was lost while idle, or has something unread."""
    channel: RespSocket | None = connection.channel
    if channel is None or not channel.is_ready:
        connection.disconnect()
        connection.connect()
        channel = connection.channel
        assert channel is not None
    return channel.exchange(packed, answers)


def _make_ready(connection: Any) -> None:
    """Connect, and again where the connection was lost while idle, or has something to say that nobody asked for."""
    connection.connect()
    try:
        is_ready = not connection.can_read()
    except FAILURES:
        is_ready = False
    if not is_ready:
        connection.disconnect()
        connection.connect()


def _command(name: str, bucket: str, arguments: Arguments) -> bytes:
    return command("EVALSHA", digest(name), "1", bucket, *arguments)


def _read(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
