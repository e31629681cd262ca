"""A task that follows which server the sentinels name as the primary. See monitor.py for the reason."""

import asyncio
import weakref
from contextvars import Context
from typing import Any

from redis.asyncio.sentinel import SentinelConnectionPool

from batchlimit.stores.client.monitor import NEWS, SPACING, subscriber


class PrimaryPool(SentinelConnectionPool):
    """A pool of redis-py that closes a connection after its call unless it leads to the primary.

    redis-py's pool for threads does so itself. Its pool for tasks closes only idle connections.
    """

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
        self._subscription = _Subscription()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<AsyncPrimaryMonitor of {self._pool()}>"

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


async def _follow(pool: "weakref.ref[Any]", subscription: "_Subscription") -> None:
    me: Any = asyncio.current_task()
    # `wait_for` in redis-py sometimes loses a cancellation in Python 3.11, so the task checks for one itself.
    while pool() is not None and not me.cancelling():
        try:
            await subscription.listen(await _ask(pool()))
        except Exception:  # noqa: BLE001  see monitor.py
            await subscription.close()
            await asyncio.sleep(SPACING)
    await subscription.close()


async def _ask(pool: Any) -> Any:
    """See PrimaryMonitor._ask."""
    await pool.get_master_address()
    return pool.sentinel_manager.sentinels[0]


class _Subscription:
    """See monitor.py."""

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
            await self._connection.read_response(timeout=SPACING, disconnect_on_error=False)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)
        self._sentinel = self._connection = None
