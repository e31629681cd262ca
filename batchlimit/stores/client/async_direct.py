"""A store's own connection to one server, for tasks: one for all of them."""

import asyncio
from contextvars import Context
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import NoScriptError

from batchlimit.stores.client.async_transport import AsyncServerTransport
from batchlimit.stores.client.codec import command
from batchlimit.stores.client.deadline import WATCH, WatchPaused
from batchlimit.stores.client.diagnosis import PASSING, code_of
from batchlimit.stores.client.multiplexed import MultiplexedConnection
from batchlimit.stores.client.scripts import digest, script
from batchlimit.stores.client.traces import untraced
from batchlimit.stores.client.transport import Arguments


class AsyncDirectTransport(AsyncServerTransport):
    """The one server of a client that nobody else uses, by one MultiplexedConnection after another."""

    def __init__(self, client: "redis.asyncio.Redis") -> None:
        super().__init__(client)
        self._seconds: float | None = client.connection_pool.connection_kwargs.get("socket_timeout")
        self._multiplexed: MultiplexedConnection | None = None
        self._connecting: asyncio.Task[MultiplexedConnection] | None = None
        self._callers = 0  # tasks that wait for it

    async def run(self, name: str, bucket: str, arguments: Arguments) -> Any:
        ask = command(("EVALSHA", digest(name), "1", bucket, *arguments))
        try:
            return await self._ask(ask)
        except NoScriptError:
            await self._ask(command(("SCRIPT", "LOAD", script(name))))
            return await self._ask(ask)

    def send(self, name: str, bucket: str, arguments: Arguments) -> "asyncio.Future[Any] | None":
        """Send a script in this turn of the loop, as `run` does; None if it would have to connect first."""
        if self._multiplexed is None or not self._multiplexed.is_open:
            return None
        return self._multiplexed.send(command(("EVALSHA", digest(name), "1", bucket, *arguments)))

    async def reset_after(self, error: Exception) -> None:
        if code_of(error) in PASSING and self._multiplexed is not None:
            self._multiplexed.retire()

    async def aclose(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._multiplexed is not None:
            await self._multiplexed.close()
        await super().aclose()

    async def _ask(self, packed: bytes) -> Any:
        multiplexed = (
            self._multiplexed
            if self._multiplexed is not None and self._multiplexed.is_open
            else await self._connected()
        )
        if WATCH.get() is not None:  # the caller's watch bounds the time
            return await multiplexed.ask(packed)
        try:
            async with asyncio.timeout(self._seconds):
                return await multiplexed.ask(packed)
        except TimeoutError as error:
            raise redis.TimeoutError(f"Timeout reading from the server after {self._seconds} s") from error

    async def _connected(self) -> MultiplexedConnection:
        """Connect, or wait for the task that does. When no caller waits any more, that task is cancelled."""
        with WatchPaused():
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect(), name="batchlimit-connect", context=Context())
            mine = self._connecting
            self._callers += 1
            try:
                return await asyncio.shield(mine)
            except asyncio.CancelledError:
                caller = asyncio.current_task()
                if mine.cancelled() and caller is not None and not caller.cancelling():
                    raise redis.ConnectionError("the store was closed") from None  # nobody cancelled the caller
                raise
            finally:
                self._callers -= 1
                if mine is self._connecting and (mine.done() or not self._callers):
                    self._connecting = None
                    mine.cancel()

    async def _connect(self) -> MultiplexedConnection:
        pool: Any = self.client.connection_pool
        connection = pool.make_connection()
        try:
            await connection.connect()
        except BaseException as error:  # asyncio logs it with its traceback if no caller waits any more
            untraced(error)
            raise
        multiplexed = MultiplexedConnection(connection)
        if asyncio.current_task() is self._connecting:
            self._multiplexed = multiplexed
        else:  # cancelled, but `wait_for` of Python 3.11 in redis-py may lose that: another task connects by now
            multiplexed.retire()
        return multiplexed
