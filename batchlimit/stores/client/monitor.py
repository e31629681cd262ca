"""Threads and tasks that follow which server the sentinels name as the primary.

After a planned failover the old primary serves its open connections for about 11 s more, while new connections go to
the new primary. Then each key has two buckets, and each of them admits the whole quota.
"""

import asyncio
import threading
import weakref
from contextvars import Context
from typing import Any

from redis.asyncio.sentinel import SentinelConnectionPool

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

    def __repr__(self) -> str:
        return f"<PrimaryMonitor of {self._pool()}>"

    def begin(self) -> None:
        """Start the thread, once; the next call tries again if the system has no thread left."""
        if self._thread is None and self._starting.acquire(blocking=False):  # else another thread starts it
            try:
                if self._thread is None:
                    self._start()
            finally:
                self._starting.release()

    def stop(self) -> None:
        """Tell the thread to end, and close the clients of the sentinels."""
        self._stopped.set()
        self._close_sentinels()

    def _start(self) -> None:
        thread = threading.Thread(target=self._follow, name="batchlimit-monitor", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return
        self._thread = thread

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
        """Return when this sentinel publishes another primary, or after a second; at once for a new sentinel.

        The message may be about another service.
        """
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
        self._subscription = _AsyncSubscription()
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


async def _follow(pool: "weakref.ref[Any]", subscription: "_AsyncSubscription") -> None:
    me: Any = asyncio.current_task()
    # `wait_for` in redis-py sometimes loses a cancellation in Python 3.11, so the task checks for one itself.
    while pool() is not None and not me.cancelling():
        try:
            await subscription.listen(await _primary_of_sentinels(pool()))
        except Exception:  # noqa: BLE001  as in the thread
            await subscription.close()
            await asyncio.sleep(SPACING)
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
            await self._connection.read_response(timeout=SPACING, disconnect_on_error=False)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)
        self._sentinel = self._connection = None
