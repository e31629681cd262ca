"""Transports for tasks: to one server, to the primary that sentinels name, and to a cluster."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Protocol

import redis.asyncio
from redis.exceptions import ClusterError, NoScriptError, RedisClusterException, SlotNotCoveredError

from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.async_monitor import AsyncPrimaryMonitor
from batchlimit.stores.client.cluster import is_lost, slot_owner
from batchlimit.stores.client.cluster_ask import follow
from batchlimit.stores.client.diagnosis import FAILURES, code_of
from batchlimit.stores.client.scripts import SCRIPTS, digest, script
from batchlimit.stores.client.transport import Arguments


class AsyncTransport(Protocol):
    """A Transport whose calls are awaited."""

    @property
    def address(self) -> str:
        """See Transport.address."""
        ...

    async def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        """See Transport.run."""
        ...

    def part(self, bucket: str) -> str:
        """See Remote.part."""
        ...

    async def reset_after(self, error: Exception) -> None:
        """See Transport.reset_after."""
        ...

    async def aclose(self) -> None:
        """Close the client."""
        ...


class AsyncServerTransport:
    """The one server of a redis.asyncio.Redis."""

    def __init__(self, client: "redis.asyncio.Redis") -> None:
        self.client = client
        # redis-py runs a registered script by its SHA. After NOSCRIPT it loads the script and sends the call again.
        self._scripts: dict[str, Any] = {name: client.register_script(script(name)) for name in SCRIPTS}

    @property
    def address(self) -> str:
        return client_address(self.client)

    async def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        # redis-py's replies have no type; here they get one.
        reply: Sequence[Any] = await self._scripts[name](keys=[bucket], args=arguments)
        return reply

    def part(self, bucket: str) -> str:
        return ""

    async def reset_after(self, error: Exception) -> None:
        """See ServerTransport.reset_after."""
        if code_of(error) == "READONLY":
            await self.client.connection_pool.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        await self.client.aclose()


class AsyncSentinelTransport(AsyncServerTransport):
    """See SentinelTransport."""

    def __init__(self, client: "redis.asyncio.Redis") -> None:
        super().__init__(client)
        self._pool: Any = client.connection_pool
        self._monitor = AsyncPrimaryMonitor(self._pool)

    async def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        self._monitor.begin()
        return await super().run(name, bucket, arguments)

    async def aclose(self) -> None:
        await self._monitor.stop()
        await super().aclose()
        for sentinel in self._pool.sentinel_manager.sentinels:
            await sentinel.aclose()


class AsyncClusterTransport:
    """A cluster. Its client connects at the first call."""

    def __init__(self, connect: "Callable[[], redis.asyncio.RedisCluster]") -> None:
        self._connect = connect
        self.client: Any = connect()
        self._looking: asyncio.Task[None] | None = None
        self.address = client_address(self.client)

    async def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        try:
            return await self._run(name, bucket, arguments)
        except KeyError as error:  # redis-py's way to say that no node has the slot
            raise SlotNotCoveredError(f"no node of the cluster has slot {error}") from error
        except AttributeError as error:  # redis-py follows an ASK to a node that it does not know yet
            await self.client.aclose()
            raise RedisClusterException("a node of the cluster is new") from error

    def part(self, bucket: str) -> str:
        return slot_owner(self.client, bucket)

    async def reset_after(self, error: Exception) -> None:
        """Replace a client that knows no living node any more by one that begins with the nodes of the URL."""
        if is_lost(error):
            before, self.client = self.client, self._connect()
            await before.aclose()

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await self.client.aclose()

    def _look_anew(self) -> None:
        """After a node failed, read the slots anew in a background task.

        redis-py would do it within the next call, to any node. If that call timed out meanwhile, redis-py would close
        the connections of all callers to all nodes.
        """
        if getattr(self.client, "_initialize", False):
            self.client._initialize = False
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(_looked(self.client), context=Context())

    async def _run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        reply: Sequence[Any]
        if self.client.get_default_node() is None:
            # Without it redis-py sends first calls to any node, and every fifth MOVED closes all callers' connections.
            await self.client.initialize()
        self._look_anew()
        try:
            reply = await self.client.evalsha(digest(name), "1", bucket, *arguments)
        except NoScriptError:  # see stores/client/cluster.py
            reply = await self.client.eval(script(name), "1", bucket, *arguments)
        except ClusterError as error:
            if "TTL exhausted" not in str(error):
                raise
            reply = await follow(self.client, name, bucket, arguments)
        return reply


async def _looked(client: Any) -> None:
    with contextlib.suppress(*FAILURES):  # the next failure starts another attempt
        await client.nodes_manager.initialize()
