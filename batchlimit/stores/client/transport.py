"""Transports for threads to one server, also to the primary that sentinels name; and what a server publishes."""

import socket
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis
from redis.exceptions import NoScriptError

from batchlimit.bucket.slot_messages import SlotPush
from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.deadline import Deadlined
from batchlimit.stores.client.diagnosis import code_of
from batchlimit.stores.client.scripts import NOTHING, Arguments, Buckets, read_push, reader, script, words


class ServerTransport:
    """The one server of a redis.Redis. As every transport, it runs scripts, and raises redis-py's errors."""

    def __init__(self, client: "redis.Redis") -> None:
        self.client = client

    @property
    def address(self) -> str:
        return client_address(self.client)

    def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Sequence[Any]:
        """Run one of SCRIPTS for buckets of these names, once; in a cluster for one bucket."""
        # redis-py's replies have no type; here they get one. redis-py's own Script class would do the same, but sends
        # the number of keys as a number: see scripts.py.
        client: Any = self.client
        reply: Sequence[Any]
        try:
            reply = client.execute_command(*words(name, buckets, arguments))
        except NoScriptError:
            client.script_load(script(name))
            reply = client.execute_command(*words(name, buckets, arguments))
        return reply

    def ask(self, key: str, *commands: tuple[str, ...]) -> Sequence[Any]:
        """Run commands, of which none is a script, at the server that has the key; return each reply."""
        client: Any = self.client
        return [client.execute_command(*each) for each in commands]

    def pubsub(self) -> Any:
        """Return redis-py's object for a subscription on a connection of its own, for one thread."""
        client: Any = self.client
        return client.pubsub()

    def primaries(self) -> "Sequence[tuple[str, redis.Redis]]":
        """Return the servers that have buckets, each with its address and a client: for people who look at them."""
        return [(self.address, self.client)]

    def reset_after(self, error: Exception) -> None:
        """Reconnect, if that may help: READONLY says that a managed failover left us connected to a replica."""
        if code_of(error) == "READONLY":
            self.client.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        self.client.close()


NEWS = "+switch-master"
"""The channel on which a sentinel publishes that it names another primary."""
SPACING = 1.0
"""Seconds between two questions to the sentinels if nothing is published meanwhile."""


class PrimaryMonitor:
    """Asks the sentinels for the primary each second, and at once when a sentinel publishes another one.

    The pool of redis-py then closes its connections to every other server: idle ones at once, those in use after their
    call. The thread starts with `begin`. It ends within a second of `stop`, or of the end of the pool.
    """

    def __init__(self, pool: Any) -> None:
        """`pool` is a SentinelConnectionPool of redis-py."""
        self._pool = weakref.ref(pool)
        self._sentinels: list[Any] = pool.sentinel_manager.sentinels  # clients, which nobody else uses
        self._subscription = _Subscription()
        self._stopped = threading.Event()
        self._starting = threading.Lock()  # held to start the thread once
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, once; the next call tries again if the system has no thread left."""
        if self._thread is None and self._starting.acquire(blocking=False):  # else another thread starts it
            try:
                if self._thread is None:
                    thread = threading.Thread(target=self._follow, name="batchlimit-monitor", daemon=True)
                    with suppress(RuntimeError):
                        thread.start()
                        self._thread = thread
            finally:
                self._starting.release()

    def stop(self) -> None:
        """Tell the thread to end, and close the clients of the sentinels."""
        self._stopped.set()
        self._close_sentinels()

    def _follow(self) -> None:
        while not self._stopped.is_set() and self._pool() is not None:
            try:
                self._subscription.listen(self._ask())
            except Exception:  # noqa: BLE001  the next call that connects fails in the same way and raises
                self._subscription.close()
                self._stopped.wait(SPACING)
        self._subscription.close()
        self._close_sentinels()  # again: a closed client connects anew if `stop` came during a question

    def _ask(self) -> Any:
        """Ask for the primary, and return the sentinel that answered: redis-py moves it to the front of its list."""
        pool: Any = self._pool()
        pool.get_master_address()
        return self._sentinels[0]

    def _close_sentinels(self) -> None:
        for each in self._sentinels:
            each.close()


class _Subscription:
    """A subscription to one sentinel at a time."""

    def __init__(self) -> None:
        self._sentinel: Any = None
        self._connection: Any = None

    def listen(self, sentinel: Any) -> None:
        """Return when this sentinel publishes a primary, of any service, or after 1 s; at once for a new sentinel."""
        if sentinel is not self._sentinel:
            self.close()
            self._connection = subscriber(sentinel)
            self._connection.connect()
            self._connection.send_command("SUBSCRIBE", NEWS)
            self._connection.read_response()
            self._sentinel = sentinel
        elif self._connection.can_read(timeout=SPACING):
            self._connection.read_response()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
        self._sentinel = self._connection = None


def subscriber(sentinel: Any) -> Any:
    """Return a new connection to this sentinel; in RESP2, because there redis-py reads messages like replies."""
    pool = sentinel.connection_pool
    return pool.connection_class(**{**pool.connection_kwargs, "protocol": 2})


class SentinelTransport(ServerTransport):
    """The primary that sentinels name, by a client of the store's own. It follows when they name another one."""

    def __init__(self, client: "redis.Redis") -> None:
        super().__init__(client)
        self._pool: Any = client.connection_pool
        self._monitor = PrimaryMonitor(self._pool)

    def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Sequence[Any]:
        self._monitor.begin()
        return super().run(name, buckets, arguments)

    def close(self) -> None:
        self._monitor.stop()
        super().close()


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
