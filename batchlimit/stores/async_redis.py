"""Buckets in Redis or Valkey, for tasks: each call is one EVALSHA of an atomic script."""

import asyncio
import math
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

import redis
import redis.asyncio

from batchlimit.base import steps
from batchlimit.bucket.messages import Ask, Grant, Groups, SpendReply
from batchlimit.quota.quota import Quota
from batchlimit.stores.base_redis import BaseRedisStore
from batchlimit.stores.client import scripts
from batchlimit.stores.client.async_direct import AsyncDirectTransport
from batchlimit.stores.client.cluster import AsyncClusterTransport, AsyncTransport
from batchlimit.stores.client.deadline import WatchPaused
from batchlimit.stores.client.diagnosis import FAILURES, failure, untraced
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.client.sentinel import AsyncSentinelTransport
from batchlimit.stores.client.transport import AsyncServerTransport
from batchlimit.stores.outage import too_late
from batchlimit.stores.protocols import Sent

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_CONNECTIONS = 64
"""The most connections of the store's own client, unless it has a MultiplexedConnection. redis-py would open one for
each call at once. Its pool with a bound waits by an async generator, which fails when the event loop ends and the last
tokens are returned."""


class AsyncRedisStore(BaseRedisStore):
    """An AsyncStore in Redis or Valkey: one server, the primary that sentinels name, or a cluster.

    It never asks a replica. With connections of its own to one server it is prompt, and has one, unless the URL has
    `health_check_interval`. All others have at most 64; a call may wait `connect_timeout` seconds for one.

    It keeps six protocols: AsyncStore, AsyncRemote, AsyncSender, AsyncSpender, Ruled and AsyncPausable. `rules` and
    `pauses` are parts of their own.

    Example:
        >>> import fakeredis
        >>> store = AsyncRedisStore(fakeredis.FakeAsyncRedis(), prefix="api")
    """

    _transport: AsyncTransport
    _of_server, _of_sentinels, _of_cluster = AsyncServerTransport, AsyncSentinelTransport, AsyncClusterTransport
    _own, _checked = AsyncDirectTransport, AsyncServerTransport  # only redis-py makes health checks, within its calls
    _api, _follow = redis.asyncio, staticmethod(steps.drive)
    _is_prompt_at = staticmethod(lambda address: not address.topology)

    def __init__(
        self, client: "redis.asyncio.Redis | redis.asyncio.RedisCluster | AsyncTransport", *, prefix: str = "batchlimit"
    ) -> None:
        """Use a client that the caller made, as RedisStore does.

        Args:
            client: a redis.asyncio.Redis, also one that a Sentinel made, or a redis.asyncio.RedisCluster.
            prefix: as of RedisStore (default "batchlimit").
        """
        super().__init__(client, prefix=prefix)

    def _use(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._free = asyncio.Semaphore(_CONNECTIONS)  # calls that may begin

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        began = time.monotonic()
        reply = await self._asked(key, quota, ask, self._within)
        if self._clocks.is_late(self.part(key), reply):  # by what was known of the server's clock
            reply = await self._asked(key, quota, ask, self._left(began))
            if self._clocks.is_late(self.part(key), reply):
                raise too_late(self.address, self._within)
        return scripts.read_grant(reply)

    def send(self, key: str, quota: Quota, ask: Ask) -> Sent[Grant] | None:
        """See AsyncSender.send."""
        words = scripts.take_arguments(quota, ask, self._seen, self._clocks.latest("", self._within))
        call = "take", [bucket_name(self._prefix, key)], words
        return self._sent(call, lambda reply: None if self._clocks.is_late("", reply) else scripts.read_grant(reply))

    def send_spend(self, groups: Groups, *, look: bool, within: float) -> Sent[SpendReply] | None:
        """See AsyncSender.send_spend."""
        sent, call = time.monotonic(), self._spending.call(groups, look, within, "")
        return self._sent(call, lambda reply: self._spending.read(reply, groups, "", sent))

    def _sent(self, call: scripts.Call, read: Callable[[Any], T]) -> Sent[T] | None:
        """Send a call in this turn of the loop. Only an AsyncDirectTransport can."""
        transport = self._transport
        if not isinstance(transport, AsyncDirectTransport) or (answer := transport.send(*call)) is None:
            return None
        return answer, partial(self._received, read)

    def _received(self, read: Callable[[Any], T], answer: "asyncio.Future[Any]") -> T | None:
        try:
            return read(answer.result())
        except redis.ResponseError:
            return None
        except FAILURES as error:
            raise failure(error, self.address) from error

    async def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        """See Spender.spend."""
        transport, server, sent = self._transport, self.part(groups[0][0].key), time.monotonic()
        call = self._spending.call(groups, look, within, server)
        return self._spending.read(await self._talk(transport, transport.run, *call), groups, server, sent)

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

    async def _run(self, name: str, bucket: str, arguments: Sequence[str | bytes], read: Callable[[Any], T]) -> T:
        transport = self._transport
        return read(await self._talk(transport, transport.run, name, (bucket,), arguments))

    async def _occupied(self) -> asyncio.Semaphore:
        """Wait until a call may begin, and return the semaphore that it releases at its end."""
        free, seconds = self._free, self._connect_timeout
        if not free.locked():
            await free.acquire()  # at once
            return free
        with WatchPaused():
            try:
                async with asyncio.timeout(seconds):
                    await free.acquire()
            except TimeoutError:
                raise TimeoutError(f"none of {_CONNECTIONS} connections was free for {seconds} s") from None
        return free

    async def _talk(self, transport: AsyncTransport, run: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        handled = sys.exception()
        try:
            try:
                # The caller's client bounds its own connections; an AsyncDirectTransport has one.
                if self._connect is None or isinstance(transport, AsyncDirectTransport):
                    return await run(*args)
                free = await self._occupied()
                try:
                    return await run(*args)
                finally:
                    free.release()
            except FAILURES as error:
                if self._connect is not None:
                    await transport.reset_after(error)
                raise failure(error, transport.address, handled) from error
        except BaseException as error:  # such as a cancellation, which may come during the reset
            untraced(error, handled)
            raise
