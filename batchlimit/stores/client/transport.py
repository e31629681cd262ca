"""How a store talks to one server, be it the one that sentinels name: each call is one EVALSHA."""

from collections.abc import Sequence
from typing import Any, Protocol

import redis
from redis.exceptions import NoScriptError

from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.diagnosis import code_of
from batchlimit.stores.client.monitor import PrimaryMonitor
from batchlimit.stores.client.scripts import digest, script

Arguments = Sequence[str | bytes]


class Transport(Protocol):
    """What a RedisStore needs of whatever runs its scripts; errors are redis-py's own."""

    @property
    def address(self) -> str:
        """Where it goes, for messages; never with a password."""
        ...

    def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        """Run one of SCRIPTS for the bucket of this name, once."""
        ...

    def part(self, bucket: str) -> str:
        """See Remote.part."""
        ...

    def mend(self, error: Exception) -> None:
        """After this error, let the next call begin anew where that helps; for a client of our own."""
        ...

    def close(self) -> None:
        """Close the client."""
        ...


class ServerTransport:
    """A Line to the one server of a redis.Redis."""

    def __init__(self, client: "redis.Redis") -> None:
        self.client = client

    @property
    def address(self) -> str:
        return client_address(self.client)

    def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        # The one place, for threads, where redis-py's untyped replies come in; but for the cluster's. By SHA; on
        # NOSCRIPT, and only then, it is loaded and asked once more, as redis-py's own scripts do, which send a number.
        client: Any = self.client
        reply: Sequence[Any]
        try:
            reply = client.execute_command("EVALSHA", digest(name), "1", bucket, *arguments)
        except NoScriptError:
            client.script_load(script(name))
            reply = client.execute_command("EVALSHA", digest(name), "1", bucket, *arguments)
        return reply

    def part(self, bucket: str) -> str:
        return ""

    def mend(self, error: Exception) -> None:
        """A managed failover moves the name to another machine, and leaves us connected to what is now a replica."""
        if code_of(error) == "READONLY":
            self.client.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        self.client.close()


class SentinelLine(ServerTransport):
    """A Line to the primary that sentinels name, by a client of our own; it is left when they name another one."""

    def __init__(self, client: "redis.Redis") -> None:
        super().__init__(client)
        self._pool: Any = client.connection_pool
        self._monitor = PrimaryMonitor(self._pool)

    def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        self._monitor.begin()
        return super().run(name, bucket, arguments)

    def close(self) -> None:
        self._monitor.stop()
        super().close()
        for sentinel in self._pool.sentinel_manager.sentinels:
            sentinel.close()
