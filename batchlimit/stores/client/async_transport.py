"""Transports for tasks to one server, also to the primary that sentinels name."""

from collections.abc import Sequence
from typing import Any, Protocol

import redis.asyncio

from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.diagnosis import code_of
from batchlimit.stores.client.monitor import AsyncPrimaryMonitor
from batchlimit.stores.client.scripts import SCRIPTS, Arguments, Buckets, script


class AsyncTransport(Protocol):
    """A Transport whose calls are awaited."""

    @property
    def address(self) -> str:
        """See Transport.address."""
        ...

    async def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Sequence[Any]:
        """See Transport.run."""
        ...

    async def ask(self, key: str, *commands: tuple[str, ...]) -> Sequence[Any]:
        """See Transport.ask."""
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

    async def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Sequence[Any]:
        # redis-py's replies have no type; here they get one.
        reply: Sequence[Any] = await self._scripts[name](keys=buckets, args=arguments)
        return reply

    async def ask(self, key: str, *commands: tuple[str, ...]) -> Sequence[Any]:
        client: Any = self.client
        return [await client.execute_command(*each) for each in commands]

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

    async def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Sequence[Any]:
        self._monitor.begin()
        return await super().run(name, buckets, arguments)

    async def aclose(self) -> None:
        await self._monitor.stop()
        await super().aclose()
        for sentinel in self._pool.sentinel_manager.sentinels:
            await sentinel.aclose()
