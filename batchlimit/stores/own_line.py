"""How a store talks to one server by a client of its own: on connections that it keeps, and uses directly.

`execute_command` has work to do that is for nobody here: it takes a connection out of a pool and puts it back, each
with a lock, a set and records for whoever observes it, and calls through a retry that never retries. So a connection,
once made, lies in a list between two calls; what makes it, and all that it does by itself, is redis-py's.
"""

import os
from typing import Any

import redis
from redis.exceptions import NoScriptError, ResponseError

from batchlimit.stores.failure import FAILURES, code_of
from batchlimit.stores.line import Arguments, ServerLine
from batchlimit.stores.scripts import digest, script
from batchlimit.stores.wire import command as packed


class OwnLine(ServerLine):
    """A Line to the one server of a redis.Redis that nobody else uses; it has as many connections as calls at once."""

    def __init__(self, client: "redis.Redis") -> None:
        super().__init__(client)
        self._pid = os.getpid()
        self._made: list[Any] = []
        self._idle: list[Any] = []  # the last one that was used serves first; to take or add one needs no lock

    def run(self, name: str, bucket: str, arguments: Arguments) -> Any:
        connection = self._take()
        try:
            reply = _ask(connection, name, bucket, arguments)
        except ResponseError:  # an answer as well, and it was read
            self._idle.append(connection)
            raise
        except BaseException:
            connection.disconnect()
            self._idle.append(connection)
            raise
        self._idle.append(connection)
        return reply

    def mend(self, error: Exception) -> None:
        if code_of(error) == "READONLY":
            idle, self._idle = self._idle, []
            for each in idle:
                each.disconnect()
            self._idle.extend(idle)

    def close(self) -> None:
        for each in self._made:
            each.disconnect()
        super().close()

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


def _ask(connection: Any, name: str, bucket: str, arguments: Arguments) -> Any:
    _make_ready(connection)
    command = [packed("EVALSHA", digest(name), "1", bucket, *arguments)]
    try:
        connection.send_packed_command(command)
        return connection.read_response()
    except NoScriptError:
        connection.send_packed_command([packed("SCRIPT", "LOAD", script(name))])
        connection.read_response()
        connection.send_packed_command(command)
        return connection.read_response()


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
