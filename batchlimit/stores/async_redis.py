"""Buckets in Redis or Valkey, for tasks: each call is one EVALSHA of an atomic script."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar

import redis
import redis.asyncio

from batchlimit.base.redaction import shown
from batchlimit.base.unique import Unique
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, Level, SpendReply
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.key import check_prefix
from batchlimit.quota.quota import Quota
from batchlimit.stores.client import factory
from batchlimit.stores.client.address import Address
from batchlimit.stores.client.async_direct import AsyncDirectTransport
from batchlimit.stores.client.async_transport import AsyncSentinelTransport, AsyncServerTransport, AsyncTransport
from batchlimit.stores.client.cluster import AsyncClusterTransport
from batchlimit.stores.client.diagnosis import FAILURES, failure, is_elsewhere
from batchlimit.stores.client.rulebook import Command, rules_name
from batchlimit.stores.client.scripts import (
    PROBE,
    PROBE_QUOTA,
    SpendScript,
    bucket_name,
    give_back_arguments,
    peek_arguments,
    probe_name,
    read_grant,
    read_level,
    take_arguments,
)
from batchlimit.stores.client.syntax import look, sure_redis
from batchlimit.stores.client.traces import untraced
from batchlimit.stores.client.watch import WatchPaused
from batchlimit.stores.redis_pauses import AsyncRedisPauses
from batchlimit.stores.redis_rules import AsyncRedisRules

T = TypeVar("T")
_CONNECTIONS = 64
"""The most connections of the store's own client, unless it has a MultiplexedConnection. redis-py would open one for
each call at once. Its pool with a bound waits by an async generator, which fails when the event loop ends and the last
tokens are returned."""


class AsyncRedisStore(Unique):
    """An AsyncStore in Redis or Valkey: one server, the primary that sentinels name, or a cluster.

    It never asks a replica. It has 16 public methods, because it keeps six protocols: AsyncStore, AsyncRemote,
    AsyncSender, AsyncSpender, AsyncRuled and AsyncPausable. `rules` and `pauses` are parts of their own.

    Example:
        >>> import fakeredis
        >>> store = AsyncRedisStore(fakeredis.FakeAsyncRedis(), prefix="api")
    """

    def __init__(
        self, client: "redis.asyncio.Redis | redis.asyncio.RedisCluster | AsyncTransport", *, prefix: str = "batchlimit"
    ) -> None:
        """Use a client that the caller made. The store never closes it.

        Args:
            client: a redis.asyncio.Redis, also one that a Sentinel made, or a redis.asyncio.RedisCluster.
            prefix: names of buckets begin with it (text, default "batchlimit").

        Raises:
            ValueError: the prefix is empty, or contains a brace or white space.
        """
        self._prefix = check_prefix(prefix)
        self._connect: Callable[[], AsyncTransport] | None = None
        self._inherited: object = None
        self._connect_timeout, self._prompt = 0.0, False
        self._use(_transport_of(client))
        self._seen = () if isinstance(self._transport, AsyncClusterTransport) else (rules_name(prefix),)
        self._spending = SpendScript("".join(self._seen))

    def _use(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._free = asyncio.Semaphore(_CONNECTIONS)  # calls that may begin

    @classmethod
    def from_url(
        cls, url: str, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05
    ) -> Self:
        """Make a store with connections of its own. It connects at its first call, and never retries.

        One server has one connection, unless the URL has `health_check_interval`. All others have at most 64
        connections; a call may wait `connect_timeout` seconds for one.

        Args:
            url: as for RedisStore.from_url.
            prefix: names of buckets begin with it (text, default "batchlimit").
            connect_timeout: for opening a connection, its greeting included (seconds, default 1.0).
            deadline: for each reply (seconds, default 0.05).

        Returns:
            The store.

        Raises:
            ValueError: the URL or one of its options is wrong; the message shows no value.
        """
        found = look(url)
        del url  # no frame of a traceback holds the password
        return cls.at(sure_redis(found), prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)

    @classmethod
    def at(
        cls, address: Address, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05
    ) -> Self:
        """Make a store for an address, as `from_url` does for a URL."""
        factory.check_async_options(address)
        connect = partial(_connected, address, factory.timeouts(connect_timeout, deadline))
        store = cls(connect(), prefix=prefix)
        store._connect, store._connect_timeout, store._prompt = connect, connect_timeout, not address.topology
        return store

    def __repr__(self) -> str:
        return f"<AsyncRedisStore {self.address} prefix {shown(self._prefix)}>"

    @property
    def address(self) -> str:
        """Hosts, ports and database, or the socket's path; without a password."""
        return self._transport.address

    @property
    def is_prompt(self) -> bool:
        """See AsyncRemote.is_prompt. True for connections of the store's own to one server."""
        return self._prompt

    @property
    def rules(self) -> AsyncRedisRules:
        """See Ruled.rules."""
        return AsyncRedisRules(self._ask, self._run, self._prefix)

    def part(self, key: str) -> str:
        """See Remote.part."""
        transport = self._transport
        return "" if isinstance(transport, AsyncServerTransport) else transport.part(bucket_name(self._prefix, key))

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        arguments = take_arguments(quota, ask, self._seen)
        return read_grant(await self._run("take", bucket_name(self._prefix, key), arguments))

    def send(self, key: str, quota: Quota, ask: Ask) -> "asyncio.Future[Any] | None":
        """See AsyncSender.send. Only an AsyncDirectTransport can."""
        transport = self._transport
        if not isinstance(transport, AsyncDirectTransport):
            return None
        return transport.send("take", (bucket_name(self._prefix, key),), take_arguments(quota, ask, self._seen))

    def receive(self, answer: "asyncio.Future[Any]") -> Grant | None:
        """See AsyncSender.receive."""
        return self._received(answer, read_grant)

    def _received(self, answer: "asyncio.Future[Any]", read: Callable[[Any], T]) -> T | None:
        try:
            return read(answer.result())
        except redis.ResponseError:
            return None
        except FAILURES as error:
            raise failure(error, self.address) from error

    @property
    def pauses(self) -> AsyncRedisPauses:
        """See Pausable."""
        return AsyncRedisPauses(self._run, self._prefix)

    @property
    def spends_together(self) -> bool:
        """See Spender."""
        return not isinstance(self._transport, AsyncClusterTransport)

    async def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        """See Spender.spend."""
        transport, server, sent = self._transport, self.part(groups[0][0].key), time.monotonic()
        call = self._spending.call(self._prefix, groups, look, within, server)
        return self._spending.read(await self._talk(transport, lambda: transport.run(*call)), groups, server, sent)

    def send_spend(self, groups: Groups, *, look: bool, within: float) -> "asyncio.Future[Any] | None":
        """See AsyncSpendSender.send_spend. Only an AsyncDirectTransport can."""
        transport, call = self._transport, self._spending.call(self._prefix, groups, look, within, "")
        return transport.send(*call) if isinstance(transport, AsyncDirectTransport) else None

    def receive_spend(self, answer: "asyncio.Future[Any]", groups: Groups, sent: float) -> SpendReply | None:
        """See AsyncSpendSender.receive_spend."""
        return self._received(answer, lambda reply: self._spending.read(reply, groups, "", sent))

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
        """In a forked child: make a new client. One that the caller made stays; the caller has to renew it."""
        self._inherited = (self._inherited, self._transport)  # kept for ever: its destructor would disturb the parent
        self.renew()

    def renew(self) -> None:
        """Replace the client if this store made it."""
        if self._connect is not None:
            self._use(self._connect())

    async def disconnect(self) -> None:
        """Replace the client if this store made it, and close the old one."""
        if self._connect is not None:
            before = self._transport
            self._use(self._connect())
            await before.aclose()

    async def aclose(self) -> None:
        """Close the client if this store made it."""
        if self._connect is not None:
            await self._transport.aclose()

    async def _run(self, name: str, bucket: str, arguments: Sequence[str | bytes]) -> Sequence[Any]:
        transport = self._transport
        return await self._talk(transport, lambda: transport.run(name, (bucket,), arguments))

    async def _ask(self, key: str, *commands: Command) -> Sequence[Any]:
        transport = self._transport
        return await self._talk(transport, lambda: transport.ask(key, *commands))

    async def _talk(self, transport: AsyncTransport, work: Callable[[], Awaitable[Sequence[Any]]]) -> Sequence[Any]:
        try:
            # The caller's client bounds its own connections; an AsyncDirectTransport has one.
            if self._connect is None or isinstance(transport, AsyncDirectTransport):
                return await work()
            async with _FreeConnection(self._free, self._connect_timeout):
                return await work()
        except FAILURES as error:
            if self._connect is not None:
                await transport.reset_after(error)
            raise failure(error, transport.address) from error
        except BaseException as error:  # such as a cancellation
            untraced(error)
            raise


class _FreeConnection:
    """Acquires a semaphore within a time (seconds). Not a generator, see _CONNECTIONS."""

    __slots__ = ("_free", "_seconds")

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free, self._seconds = free, seconds

    async def __aenter__(self) -> None:
        if not self._free.locked():
            await self._free.acquire()  # at once
            return
        with WatchPaused():
            await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError:
            raise TimeoutError(f"none of {_CONNECTIONS} connections was free for {self._seconds} s") from None

    async def __aexit__(self, *_: object) -> None:
        self._free.release()


def _transport_of(client: "redis.asyncio.Redis | redis.asyncio.RedisCluster | AsyncTransport") -> AsyncTransport:
    if isinstance(client, redis.asyncio.RedisCluster):
        return AsyncClusterTransport(lambda: client)
    return AsyncServerTransport(client) if isinstance(client, redis.asyncio.Redis) else client


def _connected(address: Address, limits: factory.Timeouts) -> AsyncTransport:
    match address.topology:
        case "cluster":
            return AsyncClusterTransport(partial(factory.async_cluster_client, address, limits))
        case "sentinel":
            return AsyncSentinelTransport(factory.async_sentinel_client(address, limits))
        case _:
            # Only redis-py makes health checks, within its own calls.
            kind = AsyncServerTransport if address.options.get("health_check_interval") else AsyncDirectTransport
            return kind(factory.async_server_client(address, limits))
