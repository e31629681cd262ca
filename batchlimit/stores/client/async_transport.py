"""Transports for tasks to one server, also to the primary that sentinels name."""

import asyncio
import weakref
from collections.abc import Sequence
from contextvars import Context
from typing import Any

import redis.asyncio
from redis.asyncio.sentinel import SentinelConnectionPool

from batchlimit.stores.client import transport
from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.diagnosis import code_of
from batchlimit.stores.client.scripts import SCRIPTS, Arguments, Buckets, script
from batchlimit.stores.client.transport import NEWS, subscriber


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

    async def reset_after(self, error: Exception) -> None:
        if code_of(error) == "READONLY":
            await self.client.connection_pool.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        await self.client.aclose()


class PrimaryPool(SentinelConnectionPool):
    """Closes a connection after its call unless it leads to the primary, as redis-py's pool for threads does."""

    async def release(self, connection: Any) -> None:
        """Put a connection back."""
        if (connection.host, connection.port) != self.master_address:
            await connection.disconnect(nowait=True)
        await super().release(connection)


class AsyncPrimaryMonitor:
    """Does what PrimaryMonitor does. Its task ends with its loop, with `stop`, or within a second of the pool's end."""

    def __init__(self, pool: Any) -> None:
        """`pool` is a PrimaryPool."""
        self._pool = weakref.ref(pool)
        self._subscription = _AsyncSubscription()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the task, once."""
        if self._task is None:
            work = _follow(self._pool, self._subscription)
            self._task = asyncio.get_running_loop().create_task(work, name="batchlimit-monitor", context=Context())
            # A program may close its loop before this task ends; asyncio should not warn about it.
            self._task._log_destroy_pending = False  # type: ignore[attr-defined]

    async def stop(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            await self._subscription.close()


async def _follow(pool: "weakref.ref[Any]", subscription: "_AsyncSubscription") -> None:
    me: Any = asyncio.current_task()
    # `wait_for` in redis-py sometimes loses a cancellation in Python 3.11, so the task checks for one itself.
    while pool() is not None and not me.cancelling():
        try:
            await subscription.listen(await _primary_of_sentinels(pool()))
        except Exception:  # noqa: BLE001  as in the thread
            await subscription.close()
            await asyncio.sleep(transport.SPACING)
    await subscription.close()


async def _primary_of_sentinels(pool: Any) -> Any:
    """See PrimaryMonitor._ask."""
    await pool.get_master_address()
    return pool.sentinel_manager.sentinels[0]


class _AsyncSubscription:
    """See _Subscription."""

    def __init__(self) -> None:
        self._sentinel: Any = None
        self._connection: Any = None

    async def listen(self, sentinel: Any) -> None:
        if sentinel is not self._sentinel:
            await self.close()
            self._connection = subscriber(sentinel)
            await self._connection.connect()
            await self._connection.send_command("SUBSCRIBE", NEWS)
            await self._connection.read_response()
            self._sentinel = sentinel
        else:
            await self._connection.read_response(timeout=transport.SPACING, disconnect_on_error=False)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)
        self._sentinel = self._connection = None


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
