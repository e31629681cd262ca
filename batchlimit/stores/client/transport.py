"""Transports to one server, for threads and for tasks; and what a server publishes.

A DirectTransport is a store's own, for threads: its connections are kept in a list, and used without redis-py's pool.
`execute_command` of redis-py takes a connection out of its pool and puts it back, with locks, sets and metrics, and
calls through a retry that is off. Here an idle connection lies in a list. redis-py opens and greets it; a RespSocket
reads and writes on it, or redis-py where TLS or health checks are on. `__init__.py` has the figures.
"""

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, ResponseError

from batchlimit.base import steps
from batchlimit.base.steps import Steps, followed
from batchlimit.bucket.slot_table import SlotPush
from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.deadline import Deadlined, RespSocket
from batchlimit.stores.client.diagnosis import FAILURES, PASSING, code_of
from batchlimit.stores.client.scripts import Arguments, Buckets, command, read_push, script, words


class _OneServer:
    """The one server of a redis-py client. As every transport, it runs scripts, and raises redis-py's errors."""

    _follow: ClassVar[Any]
    """Calls steps, or awaits them."""

    def __init__(self, client: Any) -> None:
        self.client, self.address = client, client_address(client)

    @property
    def repeats(self) -> bool:
        """Whether the client calls again what failed. Then a call ends by its deadline, which hides why."""
        return getattr(self.client.get_retry(), "_retries", 0) != 0

    @followed
    def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Steps[Any]:
        """Run one of SCRIPTS for buckets of these names, once; in a cluster for one bucket."""
        # redis-py's own Script class would do the same, but sends the number of keys as a number: see scripts.py.
        asked = encoded(words(name, buckets, arguments))
        try:
            return (yield self.client.execute_command(*asked))
        except NoScriptError:
            yield self.client.script_load(script(name).encode())
            return (yield self.client.execute_command(*asked))

    @followed
    def ask(self, key: str, *commands: tuple[str, ...]) -> Steps[Any]:
        """Run commands, of which none is a script, at the server that has the key; return each reply."""
        found = list[Any]()
        for each in commands:
            found += [(yield self.client.execute_command(*encoded(each), keys=each[1:2]))]  # by which a client caches
        return found

    @followed
    def reset_after(self, error: Exception) -> Steps[None]:
        """Reconnect, if that may help: READONLY says that a managed failover left us connected to a replica."""
        if code_of(error) == "READONLY":
            yield self.client.connection_pool.disconnect(inuse_connections=False)


def encoded(command: Sequence[str | bytes]) -> list[str | bytes]:
    """Return a command in UTF-8, but for its first word. In the encoding of a client a key would be another bucket."""
    return [command[0], *[each if isinstance(each, bytes) else each.encode() for each in command[1:]]]


class ServerTransport(_OneServer):
    """The one server of a redis.Redis."""

    _follow = staticmethod(steps.run)

    def pubsub(self) -> Any:
        """Return redis-py's object for a subscription on a connection of its own, for one thread."""
        return self.client.pubsub()

    def primaries(self) -> "Sequence[tuple[str, redis.Redis]]":
        """Return the servers that have buckets, each with its address and a client: for people who look at them."""
        return [(self.address, self.client)]

    def close(self) -> None:
        self.client.close()


class AsyncServerTransport(_OneServer):
    """The one server of a redis.asyncio.Redis."""

    _follow = staticmethod(steps.drive)

    async def aclose(self) -> None:
        await self.client.aclose()


Calls = Sequence[tuple[Buckets, Arguments]]
"""The buckets of each call, and the arguments of its script."""


class DirectTransport(ServerTransport):
    """The one server of a redis.Redis that nobody else uses. It has as many connections as calls are made at once."""

    def __init__(self, client: "redis.Redis") -> None:
        super().__init__(client)
        self._pid, self._is_closed = os.getpid(), False
        self._made: list[Any] = []
        self._idle: list[Any] = []  # last in, first out; pop and append need no lock

    def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Any:
        (reply,) = self._exchange(command(words(name, buckets, arguments)), 1)
        if isinstance(reply, NoScriptError):
            (reply,) = self.run_many(name, [(buckets, arguments)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def run_many(self, name: str, calls: Calls) -> list[Any]:
        """Run one of SCRIPTS several times in one round trip; return each reply, or the error in its place.

        If the server has lost the script, it is loaded, and the calls that missed it are sent again. An error of the
        connection is raised: then no call has a reply.
        """
        commands = [command(words(name, *each)) for each in calls]
        replies = self._exchange(b"".join(commands), len(commands))
        if lost := [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]:
            load = command(("SCRIPT", "LOAD", script(name)))
            loaded, *again = self._exchange(b"".join([load, *(commands[i] for i in lost)]), 1 + len(lost))
            for i, reply in zip(lost, again, strict=True):
                replies[i] = loaded if isinstance(loaded, Exception) else reply
        return replies

    def ask(self, key: str, *commands: tuple[str, ...]) -> Sequence[Any]:
        replies = self._exchange(b"".join(map(command, commands)), len(commands))
        for each in replies:
            if isinstance(each, Exception):
                raise each
        return replies

    def reset_after(self, error: Exception) -> None:
        if code_of(error) in PASSING:
            idle, self._idle = self._idle, []
            for each in idle:
                each.disconnect()
            self._idle.extend(idle)

    def close(self) -> None:
        self._is_closed = True
        idle, self._idle = self._idle, []
        is_ours = self._pid == os.getpid()
        for each in self._made:
            if is_ours and isinstance(each, Deadlined) and each not in idle:
                each.hang_up()
            else:
                each.disconnect()
        super().close()

    def _exchange(self, packed: bytes, answers: int) -> list[Any]:
        """Send packed commands on one connection, which any exception closes; return replies, errors among them."""
        try:
            connection = self._idle.pop() if self._pid == os.getpid() else self._make()
        except IndexError:
            connection = self._make()
        try:
            if isinstance(connection, Deadlined):
                resp: Any = connection.resp
                if resp is None or not resp.is_ready:  # lost while idle, or has something unread
                    connection.disconnect()
                    self._connect(connection)
                    resp = connection.resp
                return resp.exchange(packed, answers)  # type: ignore[no-any-return]
            self._connect(connection)
            try:  # it may have been lost while idle, or have something unread
                is_ready = not connection.can_read()
            except FAILURES:
                is_ready = False
            if not is_ready:
                connection.disconnect()
                self._connect(connection)
            connection.send_packed_command([packed])
            return [_read(connection) for _ in range(answers)]
        except BaseException as error:
            connection.disconnect()
            if self._is_closed and isinstance(error, AttributeError | OSError | redis.ConnectionError):  # by `close`
                raise redis.ConnectionError("this store was closed") from error
            raise
        finally:
            self._put_back(connection)

    def _put_back(self, connection: Any) -> None:
        """Keep a connection for the next call; one that is closed comes last, because opening it may fail."""
        if self._is_closed:
            connection.disconnect()
        if connection._sock is None:
            self._idle.insert(0, connection)
        else:
            self._idle.append(connection)

    def _make(self) -> Any:
        if os.getpid() != self._pid:  # forked without after_fork: the open connections are the parent's
            self.client.connection_pool.reset()
            self._pid, self._made, self._idle = os.getpid(), [], []
        made = self.client.connection_pool.make_connection()
        self._made.append(made)
        return made

    def _connect(self, connection: Any) -> None:
        """Open a connection. A store that was closed, or is meanwhile, has none: nobody would close that one."""
        if not self._is_closed:
            connection.connect()
        if self._is_closed:
            raise redis.ConnectionError


def _read(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


_CONFIRMED = 5.0
"""Seconds that the store may take to confirm, also where the client has no timeout of its own."""


class Subscription:
    """One channel; for one thread.

    redis-py opens the connection and subscribes. Messages are then read from the socket itself, where that is one of
    ours: redis-py takes 150 us for each, which is half a round trip of who waits.
    """

    def __init__(self, pubsub: Any, channel: str) -> None:
        self._pubsub, self._channel = pubsub, channel
        self._socket: RespSocket | None = None

    def open(self) -> None:
        """Connect and subscribe; return when the store has confirmed it. Earlier messages are lost."""
        self._pubsub.subscribe(self._channel)
        if self._pubsub.get_message(timeout=_CONFIRMED) is None:
            raise redis.TimeoutError("the store did not confirm the subscription")
        connection: Any = self._pubsub.connection
        self._socket = connection.resp if isinstance(connection, Deadlined) else None

    def read(self, seconds: float) -> tuple[str, SlotPush] | None:
        """Return the next push and the name of its limit; None if there was none for so many seconds."""
        if self._socket is not None:
            message = self._socket.read(seconds)
            return read_push(message[-1]) if message and message[0] in (b"message", "message") else None
        message = self._pubsub.get_message(timeout=seconds)
        if not message or message["type"] != "message":
            return None
        return read_push(self._pubsub.encoder.encode(message["data"]))  # as it came, whatever the client decodes by

    def close(self) -> None:
        """Disconnect."""
        self._pubsub.close()
