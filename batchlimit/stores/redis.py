"""Buckets in Redis or Valkey, for threads: each call is one EVALSHA of an atomic script."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple

import redis

from batchlimit.base import steps
from batchlimit.bucket.messages import Ask, Grant, Groups, SpendReply
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.base_redis import BaseRedisStore, RedisSlots
from batchlimit.stores.client import factory, scripts
from batchlimit.stores.client.cluster import ClusterTransport, Transport
from batchlimit.stores.client.deadline import NeedsConnection
from batchlimit.stores.client.diagnosis import FAILURES, failure, untraced
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.client.sentinel import SentinelTransport
from batchlimit.stores.client.transport import Calls, DirectTransport, ServerTransport
from batchlimit.stores.outage import too_late

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class RedisStore(BaseRedisStore):
    """A Store in Redis or Valkey: one server, the primary that sentinels name, or a cluster. It never asks a replica.

    It is prompt with connections of its own to one server, without TLS or health checks.

    It keeps seven protocols: Store, Remote, Pipelined, Spender, Ruled, Resettable and LendingStore. `rules`, `slots`
    and `pauses` are parts of their own.

    Example:
        >>> import fakeredis
        >>> store = RedisStore(fakeredis.FakeRedis(), prefix="api")
    """

    _transport: Transport
    _of_server, _of_sentinels, _of_cluster = ServerTransport, SentinelTransport, ClusterTransport
    _own = _checked = DirectTransport
    _api, _follow = redis, staticmethod(steps.run)
    _is_prompt_at = staticmethod(factory.is_prompt)

    def __init__(self, client: "redis.Redis | redis.RedisCluster | Transport", *, prefix: str = "batchlimit") -> None:
        """Use a client that the caller made. The store never closes it.

        Args:
            client: a redis.Redis, also one that a Sentinel made, or a redis.RedisCluster.
            prefix: names of buckets begin with it (text, default "batchlimit").

        Raises:
            ValueError: the prefix is empty, or contains a brace or white space.
        """
        super().__init__(client, prefix=prefix)

    def primaries(self) -> "Sequence[tuple[str, redis.Redis]]":
        """Return the servers that have buckets, each with its address and a client: for people who look at them."""
        transport = self._transport
        return self._talk(transport, transport.primaries)

    @property
    def slots(self) -> RedisSlots:
        """Lends slots of shared limits."""
        return RedisSlots(self._run, self._ask, self._pubsub, self._prefix)

    def part(self, key: str) -> str:
        """See Remote.part. It stands here for the way of a call: each asks it, and passes no file for it alone."""
        transport: Any = self._transport
        return transport.part(bucket_name(self._prefix, key)) if self.is_cluster else ""

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take. The way of a call: what `_asked` does stands here once more."""
        began, transport, name = time.monotonic(), self._transport, bucket_name(self._prefix, key)
        words = scripts.take_arguments(quota, ask, self._seen, self._clocks.latest(self.part(key), self._within))
        return self._granted(key, quota, ask, began, self._talk(transport, transport.run, "take", (name,), words))

    def _granted(self, key: str, quota: Quota, ask: Ask, began: float, reply: Any) -> Grant:
        """Read a reply. One that was too late by what was known of the server's clock is asked for once more."""
        if isinstance(reply, Exception):
            raise failure(reply, self.address)
        if self._clocks.is_late(self.part(key), reply):
            reply = self._asked(key, quota, ask, self._left(began))
            if self._clocks.is_late(self.part(key), reply):
                raise too_late(self.address, self._within)
        return scripts.read_grant(reply)

    def take_many(self, asks: Sequence[tuple[str, Quota, Ask]]) -> list[Grant | StoreUnavailable]:
        """See Pipelined: in one round trip by a DirectTransport, one after the other by all others."""
        transport = self._transport
        if not isinstance(transport, DirectTransport):
            return [self._taken(self.take, *each) for each in asks]
        began = time.monotonic()
        calls = [((bucket_name(self._prefix, each[0]),), self._words(*each, self._within)) for each in asks]
        replies = self._talk(transport, _served, transport, calls)
        return [self._taken(self._granted, *each, began, reply) for each, reply in zip(asks, replies, strict=True)]

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        """See Spender.spend."""
        transport, sent = self._transport, time.monotonic()
        server = self.part(groups[0][0].key) if self.is_cluster else ""
        call = self._spending.call(groups, look, within, server)
        return self._spending.read(self._talk(transport, transport.run, *call), groups, server, sent)

    def reset(self, key: str, *, forget: bool) -> tuple[float, ...] | None:
        """See Resettable.reset."""
        name, told = bucket_name(self._prefix, key), scripts.reset_arguments(forget)
        return self._run("reset", name, told, lambda reply: tuple([each / 1000 for each in reply]) or None)

    def close(self) -> None:
        """Close the client if this store made it; one that the caller made stays open."""
        if self._connect is not None:
            self._transport.close()

    def _pubsub(self) -> Any:
        return self._transport.pubsub()

    def _run(self, name: str, bucket: str, arguments: Sequence[str | bytes], read: Callable[[Any], T]) -> T:
        transport = self._transport
        return read(self._talk(transport, transport.run, name, (bucket,), arguments))

    def _talk(self, transport: Transport, run: Callable[[*Ts], T], *args: *Ts) -> T:
        handled, is_told = sys.exception(), False
        try:
            try:
                return run(*args)
            except FAILURES as error:
                if self._connect is not None:
                    transport.reset_after(error)
                is_told = True
                raise failure(error, transport.address, handled) from error
        except NeedsConnection:
            raise
        except BaseException as error:  # mostly a signal handler raised at an unknown place, which may be the reset
            untraced(error, handled)
            if not is_told and self._connect is not None and self._transport is transport:
                self._transport = self._connect()  # a connection may have the unread reply of this call
            raise

    def _taken(self, take: Callable[[*Ts], Grant], *args: *Ts) -> Grant | StoreUnavailable:
        try:
            return take(*args)
        except StoreUnavailable as error:
            return error


def _served(transport: DirectTransport, calls: Calls) -> list[Any]:
    """Return each reply, or its error; raise the error if all takes failed because of the server."""
    replies = transport.run_many("take", calls)
    if all(isinstance(each, Exception) and not isinstance(failure(each, ""), BucketUnavailable) for each in replies):
        raise replies[0]
    return replies
