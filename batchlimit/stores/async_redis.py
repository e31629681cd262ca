"""Buckets in Redis or Valkey, for tasks: each call is one EVALSHA of a script that does it all atomically."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Self

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from batchlimit.core.key import bucket_name, check_prefix
from batchlimit.core.lease import Ask, GiveBack, Grant, Level
from batchlimit.core.quota import Quota
from batchlimit.core.unique import Unique
from batchlimit.errors import StoreUnavailable
from batchlimit.stores.scripts import script
from batchlimit.stores.wire import (
    give_back_arguments,
    read_grant,
    read_level,
    server_address,
    take_arguments,
)

_CONNECTIONS = 64
"""The most that a client of our own opens. Nothing bounds how many keys are asked for at one moment, and redis-py's
default opens a connection for each. Its own pool with a bound waits by an async generator, which cannot be done where
the last tokens go back: when the loop ends."""

try:
    from redis.driver_info import DriverInfo
except ImportError:  # redis-py before 7.2
    _INTRODUCTION: dict[str, Any] = {}
else:
    # Made once: redis-py reads its own version from the disk for every connection, 0.9 ms each, on the event loop.
    _INTRODUCTION = {"driver_info": DriverInfo()}


class AsyncRedisStore(Unique):
    """An AsyncStore on a redis.asyncio client that the caller made, and keeps: it is used, never closed."""

    def __init__(self, client: "redis.asyncio.Redis", *, prefix: str = "batchlimit") -> None:
        self._prefix = check_prefix(prefix)
        self._connect: Callable[[], redis.asyncio.Redis] | None = None
        self._inherited: redis.asyncio.Redis | None = None
        self._patience = 0.0
        self._use(client)

    def _use(self, client: "redis.asyncio.Redis") -> None:
        self._client = client
        self._free = asyncio.Semaphore(_CONNECTIONS)  # connections of our own that nobody uses
        # A registered script runs by its SHA; on NOSCRIPT, and only then, redis-py loads it and asks once more.
        self._take = client.register_script(script("take"))
        self._give_back = client.register_script(script("give_back"))
        self._peek = client.register_script(script("peek"))

    @classmethod
    def from_url(cls, url: str, *, prefix: str = "batchlimit", connect_timeout: float = 1.0) -> Self:
        """Use the server at `url`; a connection and a reply may each take `connect_timeout` seconds.

        So may the wait for one of the 64 connections. Nothing is retried below us, as in RedisStore.
        """

        def connect() -> redis.asyncio.Redis:
            return redis.asyncio.Redis.from_url(
                url,
                socket_connect_timeout=connect_timeout,
                socket_timeout=connect_timeout,
                retry=Retry(NoBackoff(), 0),
                **_INTRODUCTION,
            )

        store = cls(connect(), prefix=prefix)
        store._connect, store._patience = connect, connect_timeout
        return store

    def __repr__(self) -> str:
        return f"<AsyncRedisStore {self.address} prefix {self._prefix!r}>"

    @property
    def address(self) -> str:
        """Host, port and database, or the socket's path; never a password."""
        return server_address(self._client.connection_pool.connection_kwargs)

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        return read_grant(await self._run(self._take, key, take_arguments(quota, ask)))

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        return int((await self._run(self._give_back, key, give_back_arguments(quota, back)))[0])

    async def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        return read_level(await self._run(self._peek, key, [quota.encode()]))

    def after_fork(self) -> None:
        """Take a client of the child's own; one that the caller made stays, and is the caller's to renew."""
        self._inherited = self._client  # never let go of: its destructor would disturb the parent
        self.renew()

    def renew(self) -> None:
        """Take another client of our own; one that the caller made stays."""
        if self._connect is not None:
            self._use(self._connect())

    async def disconnect(self) -> None:
        """Close the client if this store made it, and take another."""
        if self._connect is not None:
            before = self._client
            self._use(self._connect())
            await before.aclose()

    async def aclose(self) -> None:
        """Close the client if this store made it."""
        if self._connect is not None:
            await self._client.aclose()

    # The one place where redis-py's untyped replies come in.
    async def _run(self, registered: Any, key: str, arguments: Sequence[str | int | float]) -> Sequence[Any]:
        try:
            async with self._turn():
                reply: Sequence[Any] = await registered(keys=[bucket_name(self._prefix, key)], args=arguments)
        except (redis.RedisError, OSError) as error:
            raise StoreUnavailable(f"{self.address} failed: {type(error).__name__}: {error}") from error
        return reply

    def _turn(self) -> AbstractAsyncContextManager[None]:
        """Wait for one of our connections; a client that the caller made has its own rules."""
        return nullcontext() if self._connect is None else _Turn(self._free, self._patience)


class _Turn:
    """A semaphore that is waited for so many seconds; not by a generator, see above."""

    __slots__ = ("_free", "_seconds")

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free, self._seconds = free, seconds

    async def __aenter__(self) -> None:
        if not self._free.locked():
            await self._free.acquire()  # at once
            return
        async with asyncio.timeout(self._seconds):
            await self._free.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._free.release()
