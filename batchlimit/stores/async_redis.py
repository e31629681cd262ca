"""Buckets in Redis or Valkey, for tasks: each call is one EVALSHA of a script that does it all atomically."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import redis
import redis.asyncio

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.key import bucket_name, check_prefix
from batchlimit.quota.quota import Quota
from batchlimit.redaction import shown
from batchlimit.stores.client import factory
from batchlimit.stores.client.address import Address
from batchlimit.stores.client.async_direct import AsyncDirectTransport
from batchlimit.stores.client.async_transport import (
    AsyncClusterTransport,
    AsyncSentinelLine,
    AsyncServerTransport,
    AsyncTransport,
)
from batchlimit.stores.client.codec import give_back_arguments, peek_arguments, read_grant, read_level, take_arguments
from batchlimit.stores.client.deadline import Unhurried
from batchlimit.stores.client.diagnosis import FAILURES, failure
from batchlimit.stores.client.probe import PROBE, PROBE_QUOTA, is_elsewhere, probe_name
from batchlimit.stores.client.syntax import look, sure_redis
from batchlimit.stores.client.traces import untraced
from batchlimit.unique import Unique

_CONNECTIONS = 64
"""The most that a client of our own opens where it has no Pipe. Nothing bounds how many keys are asked for at one
moment, and redis-py's default opens a connection for each. Its own pool with a bound waits by an async generator, which
cannot be done where the last tokens go back: when the loop ends."""


class AsyncRedisStore(Unique):
    """An AsyncStore on a client of redis.asyncio that the caller made, and keeps: it is used, never closed.

    Of one server, of the primary that sentinels name, or of a cluster. No replica is ever asked.
    """

    def __init__(
        self, client: "redis.asyncio.Redis | redis.asyncio.RedisCluster | AsyncTransport", *, prefix: str = "batchlimit"
    ) -> None:
        self._prefix = check_prefix(prefix)
        self._connect: Callable[[], AsyncTransport] | None = None
        self._inherited: object = None
        self._patience, self._prompt = 0.0, False
        self._use(_line_of(client))

    def _use(self, line: AsyncTransport) -> None:
        self._line = line
        self._free = asyncio.Semaphore(_CONNECTIONS)  # connections of our own that nobody uses

    @classmethod
    def from_url(
        cls, url: str, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05
    ) -> Self:
        """Use what is at `url`, as RedisStore does: one server by one connection, unless that is to be health-checked.

        All else by 64 connections at the most, for one of which a call may wait `connect_timeout` seconds.
        """
        found = look(url)
        del url  # what a traceback goes through shows no password
        return cls.at(sure_redis(found), prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)

    @classmethod
    def at(
        cls, address: Address, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05
    ) -> Self:
        """Use what is at an address, as `from_url` does."""
        factory.check_async_options(address)
        connect = partial(_connected, address, factory.timeouts(connect_timeout, deadline))
        store = cls(connect(), prefix=prefix)
        store._connect, store._patience, store._prompt = connect, connect_timeout, not address.topology
        return store

    def __repr__(self) -> str:
        return f"<AsyncRedisStore {self.address} prefix {shown(self._prefix)}>"

    @property
    def address(self) -> str:
        """Hosts, ports and database, or the socket's path; never a password."""
        return self._line.address

    @property
    def is_prompt(self) -> bool:
        """See AsyncRemote.is_prompt: so is a client of our own for one server."""
        return self._prompt

    def part(self, key: str) -> str:
        """See Remote.part."""
        line = self._line
        return "" if isinstance(line, AsyncServerTransport) else line.part(bucket_name(self._prefix, key))

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        return read_grant(await self._run("take", bucket_name(self._prefix, key), take_arguments(quota, ask)))

    def send(self, key: str, quota: Quota, ask: Ask) -> "asyncio.Future[Any] | None":
        """See AsyncSender.send: by a client of our own for one server."""
        line = self._line
        if not isinstance(line, AsyncDirectTransport):
            return None
        return line.send("take", bucket_name(self._prefix, key), take_arguments(quota, ask))

    def receive(self, answer: "asyncio.Future[Any]") -> Grant | None:
        """See AsyncSender.receive."""
        try:
            return read_grant(answer.result())
        except redis.ResponseError:
            return None
        except FAILURES as error:
            raise failure(error, self.address) from error

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        reply = await self._run("give_back", bucket_name(self._prefix, key), give_back_arguments(quota, back))
        return int(reply[0])

    async def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        return read_level(await self._run("peek", bucket_name(self._prefix, key), peek_arguments(quota)))

    async def probe(self, key: str) -> None:
        """See Remote.probe."""
        try:
            await self._run("take", probe_name(self._prefix, key), take_arguments(PROBE_QUOTA, PROBE))
        except BucketUnavailable as error:
            if is_elsewhere(error):
                raise

    def after_fork(self) -> None:
        """Take a client of the child's own; one that the caller made stays, and is the caller's to renew."""
        self._inherited = (self._inherited, self._line)  # never let go of: its destructor would disturb the parent
        self.renew()

    def renew(self) -> None:
        """Take another client of our own; one that the caller made stays."""
        if self._connect is not None:
            self._use(self._connect())

    async def disconnect(self) -> None:
        """Close the client if this store made it, and take another."""
        if self._connect is not None:
            before = self._line
            self._use(self._connect())
            await before.aclose()

    async def aclose(self) -> None:
        """Close the client if this store made it."""
        if self._connect is not None:
            await self._line.aclose()

    async def _run(self, name: str, bucket: str, arguments: Sequence[str | bytes]) -> Sequence[Any]:
        line = self._line
        try:
            if self._connect is None or isinstance(
                line, AsyncDirectTransport
            ):  # the caller's has its own rules, ours one pipe
                return await line.run(name, bucket, arguments)
            async with _Turn(self._free, self._patience):
                return await line.run(name, bucket, arguments)
        except FAILURES as error:
            if self._connect is not None:
                await line.mend(error)
            raise failure(error, line.address) from error
        except BaseException as error:  # such as the cancellation of whoever asked
            untraced(error)
            raise


class _Turn:
    """A semaphore that is waited for so many seconds; not by a generator, see above."""

    __slots__ = ("_free", "_seconds")

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free, self._seconds = free, seconds

    async def __aenter__(self) -> None:
        if not self._free.locked():
            await self._free.acquire()  # at once
            return
        with Unhurried():
            await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError:
            raise TimeoutError(f"none of {_CONNECTIONS} connections was free for {self._seconds} s") from None

    async def __aexit__(self, *_: object) -> None:
        self._free.release()


def _line_of(client: "redis.asyncio.Redis | redis.asyncio.RedisCluster | AsyncTransport") -> AsyncTransport:
    if isinstance(client, redis.asyncio.RedisCluster):
        return AsyncClusterTransport(lambda: client)
    return AsyncServerTransport(client) if isinstance(client, redis.asyncio.Redis) else client


def _connected(address: Address, patience: factory.Timeouts) -> AsyncTransport:
    match address.topology:
        case "cluster":
            return AsyncClusterTransport(partial(factory.async_cluster_client, address, patience))
        case "sentinel":
            return AsyncSentinelLine(factory.async_sentinel_client(address, patience))
        case _:
            client = factory.async_server_client(address, patience)
            # Who wants health checks wants them of redis-py, amid its own calls.
            return (
                AsyncServerTransport(client)
                if address.options.get("health_check_interval")
                else AsyncDirectTransport(client)
            )
