"""How a store for tasks talks to one server, be it the one that sentinels name, or to a cluster."""

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
    """A Line whose talk is awaited."""

    @property
    def address(self) -> str:
        """See Line.address."""
        ...

    async def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        """See Line.run."""
        ...

    def part(self, bucket: str) -> str:
        """See Remote.part."""
        ...

    async def mend(self, error: Exception) -> None:
        """See Line.mend."""
        ...

    async def aclose(self) -> None:
        """Close the client."""
        ...


class AsyncServerTransport:
    """An AsyncLine to the one server of a redis.asyncio.Redis."""

    def __init__(self, client: "redis.asyncio.Redis") -> None:
        self.client = client
        # A registered script runs by its SHA; on NOSCRIPT, and only then, redis-py loads it and asks once more.
        self._scripts: dict[str, Any] = {name: client.register_script(script(name)) for name in SCRIPTS}

    @property
    def address(self) -> str:
        return client_address(self.client)

    async def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        # The one place, for tasks, where redis-py's untyped replies come in; but for the cluster's.
        reply: Sequence[Any] = await self._scripts[name](keys=[bucket], args=arguments)
        return reply

    def part(self, bucket: str) -> str:
        return ""

    async def mend(self, error: Exception) -> None:
        """See ServerLine.mend."""
        if code_of(error) == "READONLY":
            await self.client.connection_pool.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        await self.client.aclose()


class AsyncSentinelLine(AsyncServerTransport):
    """See SentinelLine."""

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
    """An AsyncLine to a cluster; its client connects by itself at the first call."""

    def __init__(self, connect: "Callable[[], redis.asyncio.RedisCluster]") -> None:
        self._connect = connect
        self.client: Any = connect()
        self._looking: asyncio.Task[None] | None = None
        self.address = client_address(self.client)

    async def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        try:
            return await self._run(name, bucket, arguments)
        except KeyError as error:  # so says redis-py
            raise SlotNotCoveredError(f"no node of the cluster has slot {error}") from error
        except AttributeError as error:  # redis-py follows an ASK to a node that it has not heard of yet
            await self.client.aclose()
            raise RedisClusterException("a node of the cluster is new") from error

    def part(self, bucket: str) -> str:
        return slot_owner(self.client, bucket)

    async def mend(self, error: Exception) -> None:
        """A client that knows no living node any more begins anew with those of the URL."""
        if is_lost(error):
            before, self.client = self.client, self._connect()
            await before.aclose()

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await self.client.aclose()

    def _look_anew(self) -> None:
        """After a failed node, look in a task of our own at who has what.

        redis-py does it in the next call, whichever node that is for; and where that call's time is up meanwhile, it
        closes the connections of all callers to all nodes.
        """
        if getattr(self.client, "_initialize", False):
            self.client._initialize = False
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(_looked(self.client), context=Context())

    async def _run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        reply: Sequence[Any]
        if self.client.get_default_node() is None:
            # Else redis-py sends first calls anywhere, and every fifth MOVED closes the connections of all callers.
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
    with contextlib.suppress(*FAILURES):  # then the next failure has somebody look again
        await client.nodes_manager.initialize()
