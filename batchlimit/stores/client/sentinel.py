"""Transports to the primary that sentinels name, for threads and for tasks. They follow when it is another one."""

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any

import redis.asyncio
from redis.asyncio.sentinel import SentinelConnectionPool

from batchlimit.base.steps import Steps, drive, run
from batchlimit.stores.client.scripts import Arguments, Buckets
from batchlimit.stores.client.transport import AsyncServerTransport, ServerTransport

NEWS = "+switch-master"
"""The channel on which a sentinel publishes that it names another primary."""
SPACING = 1.0
"""Seconds between two questions to the sentinels if nothing is published meanwhile."""


class _Following:
    """Asks the sentinels for the primary each second, and at once when a sentinel publishes another one.

    The pool of redis-py then closes its connections to every other server: idle ones at once, those in use after their
    call. It ends within a second of the end of the pool, or of what `is_over` tells.
    """

    def __init__(
        self, pool: Any, is_over: Callable[[], object], rest: Callable[[float], Any], hear: Callable[[Any], Any]
    ) -> None:
        """`pool` is that of redis-py; `hear` waits for what a connection brings, for SPACING at most."""
        self._pool, self._is_over, self._rest, self._hear = weakref.ref(pool), is_over, rest, hear
        self._sentinel: Any = None
        self._connection: Any = None

    def steps(self) -> Steps[None]:
        """Follow; what is yielded is called or awaited, as redis-py's clients are."""
        while self._pool() is not None and not self._is_over():
            try:
                yield from self._listen((yield from self._asked()))
            except Exception:  # noqa: BLE001  the next call that connects fails in the same way and raises
                yield self.close()
                yield self._rest(SPACING)
        yield self.close()

    def _asked(self) -> Steps[Any]:
        """Ask for the primary, and return the sentinel that answered: redis-py moves it to the front of its list."""
        pool: Any = self._pool()
        yield pool.get_master_address()
        return pool.sentinel_manager.sentinels[0]

    def _listen(self, sentinel: Any) -> Steps[None]:
        """Return when this sentinel publishes a primary, of any service, or after 1 s; at once for a new sentinel."""
        if sentinel is self._sentinel:
            yield self._hear(self._connection)
            return
        yield self.close()
        pool = sentinel.connection_pool
        # In RESP2, because there redis-py reads messages like replies.
        self._connection = pool.connection_class(**{**pool.connection_kwargs, "protocol": 2})
        yield self._connection.connect()
        yield self._connection.send_command("SUBSCRIBE", NEWS)
        yield self._connection.read_response()
        self._sentinel = sentinel

    def close(self) -> Any:
        """Let go of the subscription."""
        connection, self._sentinel, self._connection = self._connection, None, None
        return connection and connection.disconnect(True)  # for tasks: without waiting for the end of the transport


def _follow(following: _Following, sentinels: list[Any]) -> None:
    run(following.steps())
    for each in sentinels:
        each.close()  # again: one that was closed during a question has connected anew


class SentinelTransport(ServerTransport):
    """The primary that sentinels name, by a client of the store's own. A thread follows it from the first call on."""

    def __init__(self, client: "redis.Redis") -> None:
        super().__init__(client)
        pool: Any = client.connection_pool
        self._sentinels: list[Any] = pool.sentinel_manager.sentinels  # clients, which nobody else uses
        self._stopped = threading.Event()
        self._following = _Following(
            pool,
            self._stopped.is_set,
            self._stopped.wait,
            lambda connection: connection.can_read(timeout=SPACING) and connection.read_response(),
        )
        self._starting = threading.Lock()  # held to start the thread once
        self._thread: threading.Thread | None = None

    def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Any:
        if self._thread is None and self._starting.acquire(blocking=False):  # else another thread starts it
            try:
                if self._thread is None:
                    # It knows nothing that keeps the pool alive, and ends within a second of the pool's end.
                    told = self._following, self._sentinels
                    thread = threading.Thread(target=_follow, args=told, name="batchlimit-monitor", daemon=True)
                    with suppress(RuntimeError):  # no thread can be had: the next call tries again
                        thread.start()
                        self._thread = thread
            finally:
                self._starting.release()
        return super().run(name, buckets, arguments)

    def close(self) -> None:
        self._stopped.set()
        for each in self._sentinels:
            each.close()
        super().close()


class PrimaryPool(SentinelConnectionPool):
    """Closes a connection after its call unless it leads to the primary, as redis-py's pool for threads does."""

    async def release(self, connection: Any) -> None:
        """Put a connection back."""
        if (connection.host, connection.port) != self.master_address:
            await connection.disconnect(nowait=True)
        await super().release(connection)


def _is_cancelled() -> bool:
    # `wait_for` in redis-py sometimes loses a cancellation in Python 3.11, so the task checks for one itself.
    me = asyncio.current_task()
    return me is not None and me.cancelling() > 0


class AsyncSentinelTransport(AsyncServerTransport):
    """See SentinelTransport. Here a task follows the primary, which ends with its loop too."""

    def __init__(self, client: "redis.asyncio.Redis") -> None:
        super().__init__(client)
        self._following = _Following(
            client.connection_pool,
            _is_cancelled,
            asyncio.sleep,
            lambda connection: connection.read_response(timeout=SPACING, disconnect_on_error=False),
        )
        self._task: asyncio.Task[None] | None = None

    def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Any:
        if self._task is None:
            work = drive(self._following.steps())
            self._task = asyncio.get_running_loop().create_task(work, name="batchlimit-monitor", context=Context())
            # A program may close its loop before this task ends; asyncio should not warn about it.
            self._task._log_destroy_pending = False  # type: ignore[attr-defined]
        return super().run(name, buckets, arguments)

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if (closing := self._following.close()) is not None:
                await closing
        await super().aclose()
        pool: Any = self.client.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()
