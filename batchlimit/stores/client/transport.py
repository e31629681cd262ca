"""Transports for threads to one server, also to the primary that sentinels name: each call is one EVALSHA."""

from collections.abc import Sequence
from typing import Any, Protocol

import redis
from redis.exceptions import NoScriptError

from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.diagnosis import code_of
from batchlimit.stores.client.monitor import PrimaryMonitor
from batchlimit.stores.client.scripts import Arguments, Buckets, script, words


class Transport(Protocol):
    """Runs the scripts for a RedisStore. It raises redis-py's errors."""

    @property
    def address(self) -> str:
        """The server's address, for messages; without a password."""
        ...

    def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Sequence[Any]:
        """Run one of SCRIPTS for buckets of these names, once; in a cluster for one bucket."""
        ...

    def ask(self, key: str, *commands: tuple[str, ...]) -> Sequence[Any]:
        """Run commands, of which none is a script, at the server that has the key; return each reply."""
        ...

    def part(self, bucket: str) -> str:
        """See Remote.part."""
        ...

    def primaries(self) -> "Sequence[tuple[str, redis.Redis]]":
        """Return the servers that have buckets, each with its address and a client: for people who look at them."""
        ...

    def pubsub(self) -> Any:
        """Return redis-py's object for a subscription on a connection of its own, for one thread."""
        ...

    def reset_after(self, error: Exception) -> None:
        """After this error, reconnect or replace the client if that may help. Only for a client of the store's own."""
        ...

    def close(self) -> None:
        """Close the client."""
        ...


class ServerTransport:
    """The one server of a redis.Redis."""

    def __init__(self, client: "redis.Redis") -> None:
        self.client = client

    @property
    def address(self) -> str:
        return client_address(self.client)

    def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Sequence[Any]:
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
        client: Any = self.client
        return [client.execute_command(*each) for each in commands]

    def pubsub(self) -> Any:
        client: Any = self.client
        return client.pubsub()

    def part(self, bucket: str) -> str:
        return ""

    def primaries(self) -> "Sequence[tuple[str, redis.Redis]]":
        return [(self.address, self.client)]

    def reset_after(self, error: Exception) -> None:
        """After READONLY, resolve the name anew: a managed failover left us connected to what is now a replica."""
        if code_of(error) == "READONLY":
            self.client.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        self.client.close()


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
