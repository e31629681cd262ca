"""The transports to a cluster: each call is one EVALSHA at the primary that has the bucket's slot."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import (
    AskError,
    ClusterError,
    MaxConnectionsError,
    NoScriptError,
    RedisClusterException,
    SlotNotCoveredError,
)

from batchlimit.base.blocking import OwnLock, not_reentered
from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.diagnosis import FAILURES
from batchlimit.stores.client.scripts import Arguments, Buckets, script, words
from batchlimit.stores.client.transport import AsyncServerTransport, ServerTransport, encoded

NOBODY = "no node"
"""The name of the part that holds all slots without a node."""


def is_lost(error: Exception) -> bool:
    """Whether a cluster client knows no living node any more. One slot without a node is not that."""
    return isinstance(error, RedisClusterException | MaxConnectionsError) and not isinstance(error, SlotNotCoveredError)


class ClusterTransport:
    """A cluster. The store's own client is made at the first call, because making it connects; a caller's is given."""

    def __init__(self, connect: "Callable[[], redis.RedisCluster]", address: str = "") -> None:
        """`address` is that of a client which is not made yet."""
        self._connect, self._client = connect, None if address else connect()
        self.address = address or client_address(self._client)
        self._lock = OwnLock()  # held while the client is made: many callers make one

    @property
    def client(self) -> Any:
        """The client, which is made at the first call."""
        if (client := self._client) is None:
            with not_reentered(self._lock):
                self._client = client = self._client or self._connect()
        return client

    def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Any:
        client, asked = self.client, encoded(words(name, buckets, arguments))
        try:
            try:
                return client.execute_command(*asked)
            except NoScriptError:
                # EVAL goes where the EVALSHA went, and leaves the script there. redis-py would send SCRIPT LOAD to all
                # known primaries: one of them may be down, and the one that a slot moves to may not be among them.
                return client.execute_command("EVAL", script(name).encode(), *asked[2:])
        except AttributeError as error:  # redis-py follows an ASK to a node that it does not know yet
            client.nodes_manager.initialize()
            raise RedisClusterException("a node of the cluster is new") from error

    def ask(self, key: str, *commands: tuple[str, ...]) -> Sequence[Any]:
        client = self.client
        node = client.get_node_from_key(key.encode())
        return [client.execute_command(*encoded(each), target_nodes=node, keys=each[1:2]) for each in commands]

    def pubsub(self) -> Any:
        return self.client.pubsub()

    def part(self, bucket: str) -> str:
        return slot_owner(self._client, bucket) if self._client else ""

    def primaries(self) -> "Sequence[tuple[str, redis.Redis]]":
        client = self.client
        return [(each.name, client.get_redis_connection(each)) for each in client.get_primaries()]

    def reset_after(self, error: Exception) -> None:
        """Replace a client that knows no living node any more by one that begins with the nodes of the URL."""
        if is_lost(error):
            self._client = None

    def close(self) -> None:
        if (client := self._client) is not None:
            client.close()


Transport = ServerTransport | ClusterTransport


def slot_owner(client: Any, bucket: str) -> str:
    """Return host and port of the bucket's primary, as far as a client knows; slots without a node are a part."""
    slots = client.nodes_manager.slots_cache
    nodes = slots.get(client.keyslot(bucket.encode()))
    return nodes[0].name if nodes else NOBODY if slots else ""


class AsyncClusterTransport:
    """A cluster. Its client connects at the first call."""

    def __init__(self, connect: "Callable[[], redis.asyncio.RedisCluster]", _address: str = "") -> None:
        self._connect = connect
        self.client: Any = connect()
        self._looking: asyncio.Task[None] | None = None
        self.address = client_address(self.client)

    async def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Any:
        asked = encoded(words(name, buckets, arguments))
        try:
            if self.client.get_default_node() is None:
                # Without it redis-py sends first calls to any node, and every fifth MOVED closes all callers'
                # connections.
                await self.client.initialize()
            self._look_anew()
            try:
                return await self.client.execute_command(*asked)
            except NoScriptError:  # as of the threads
                return await self.client.execute_command("EVAL", script(name).encode(), *asked[2:])
            except ClusterError as error:
                if "TTL exhausted" not in str(error):
                    raise
                return await _follow(self.client, name, buckets[0], asked)
        except KeyError as error:  # redis-py's way to say that no node has the slot
            raise SlotNotCoveredError(f"no node of the cluster has slot {error}") from error
        except AttributeError as error:  # redis-py follows an ASK to a node that it does not know yet
            await self.client.aclose()
            raise RedisClusterException("a node of the cluster is new") from error

    async def ask(self, key: str, *commands: tuple[str, ...]) -> Sequence[Any]:
        if self.client.get_default_node() is None:
            await self.client.initialize()
        node, send = self.client.get_node_from_key(key.encode()), self.client.execute_command
        return [await send(*encoded(each), target_nodes=node, keys=each[1:2]) for each in commands]

    def part(self, bucket: str) -> str:
        return slot_owner(self.client, bucket)

    async def reset_after(self, error: Exception) -> None:
        """Replace a client that knows no living node any more by one that begins with the nodes of the URL."""
        if is_lost(error):
            before, self.client = self.client, self._connect()
            await _close(before)

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await _close(self.client)

    def _look_anew(self) -> None:
        """After a node failed, read the slots anew in a background task.

        redis-py would do it within the next call, to any node. If that call timed out meanwhile, redis-py would close
        the connections of all callers to all nodes.
        """
        if getattr(self.client, "_initialize", False):
            self.client._initialize = False
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(_looked(self.client), context=Context())


AsyncTransport = AsyncServerTransport | AsyncClusterTransport


async def _close(client: Any) -> None:
    """redis-py would leave all connections open after a node failed, until it has read the slots anew."""
    client._initialize = False
    await client.aclose()


async def _looked(client: Any) -> None:
    with contextlib.suppress(*FAILURES):  # the next failure starts another attempt
        await client.nodes_manager.initialize()


async def _follow(client: Any, name: str, bucket: str, asked: Sequence[str | bytes]) -> Any:
    """Run a script whose slot is moving: at the node that the old node names, or at that one if it has the key still.

    The old node replies ASK, and the new one serves a command that follows ASKING. Both have to be sent on the same
    connection. redis-py's client for tasks sends them on two if it has an even number of connections, and stops after a
    while. Nothing was carried out by then.
    """
    try:
        return await client.get_node_from_key(bucket.encode()).execute_command(*asked)
    except AskError as elsewhere:
        node = client.get_node(elsewhere.host, elsewhere.port)
        if node is None:
            raise ClusterError("TTL exhausted: a node of the cluster is new") from elsewhere
    connection = node.acquire_connection()
    try:
        return await _say(connection, *asked)
    except NoScriptError:
        return await _say(connection, "EVAL", script(name).encode(), *asked[2:])
    finally:
        node._free.append(connection)  # release() is missing in redis-py 5.2


async def _say(connection: Any, *command: str | bytes) -> Any:
    await connection.connect()
    await connection.send_command("ASKING")
    await connection.read_response()
    await connection.send_command(*command)
    return await connection.read_response()
