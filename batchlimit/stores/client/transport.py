"""Transports to one server, for threads and for tasks; and what a server publishes."""

from collections.abc import Sequence
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import NoScriptError

from batchlimit.bucket.slot_table import SlotPush
from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.deadline import Deadlined, RespSocket
from batchlimit.stores.client.diagnosis import code_of
from batchlimit.stores.client.scripts import SCRIPTS, Arguments, Buckets, read_push, script, words


class ServerTransport:
    """The one server of a redis.Redis. As every transport, it runs scripts, and raises redis-py's errors."""

    def __init__(self, client: "redis.Redis") -> None:
        self.client, self.address = client, client_address(client)

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


class AsyncServerTransport:
    """The one server of a redis.asyncio.Redis."""

    def __init__(self, client: "redis.asyncio.Redis") -> None:
        self.client, self.address = client, client_address(client)
        # redis-py runs a registered script by its SHA. After NOSCRIPT it loads the script and sends the call again.
        self._scripts: dict[str, Any] = {name: client.register_script(script(name)) for name in SCRIPTS}

    async def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Sequence[Any]:
        # redis-py's replies have no type; here they get one.
        reply: Sequence[Any] = await self._scripts[name](keys=buckets, args=arguments)
        return reply

    async def ask(self, key: str, *commands: tuple[str, ...]) -> Sequence[Any]:
        client: Any = self.client
        return [await client.execute_command(*each) for each in commands]

    async def reset_after(self, error: Exception) -> None:
        if code_of(error) == "READONLY":
            await self.client.connection_pool.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        await self.client.aclose()


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
        return read_push(message["data"]) if message and message["type"] == "message" else None

    def close(self) -> None:
        """Disconnect."""
        self._pubsub.close()
