"""Buckets in Redis or Valkey: each call is one EVALSHA of a script that does it all atomically."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar, TypeVarTuple

import redis

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.key import bucket_name, check_prefix
from batchlimit.quota.quota import Quota
from batchlimit.redaction import shown
from batchlimit.stores.client import factory
from batchlimit.stores.client.address import Address
from batchlimit.stores.client.cluster import ClusterTransport
from batchlimit.stores.client.codec import give_back_arguments, peek_arguments, read_grant, read_level, take_arguments
from batchlimit.stores.client.deadline import NotPrompt
from batchlimit.stores.client.diagnosis import FAILURES, failure
from batchlimit.stores.client.direct import Calls, DirectTransport
from batchlimit.stores.client.probe import PROBE, PROBE_QUOTA, is_elsewhere, probe_name
from batchlimit.stores.client.syntax import look, sure_redis
from batchlimit.stores.client.traces import untraced
from batchlimit.stores.client.transport import SentinelLine, ServerTransport, Transport
from batchlimit.unique import Unique

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class RedisStore(Unique):
    """A Store on a client of redis-py that the caller made, and keeps: it is used, never closed.

    Of one server, of the primary that sentinels name, or of a cluster. No replica is ever asked.
    """

    def __init__(self, client: "redis.Redis | redis.RedisCluster | Transport", *, prefix: str = "batchlimit") -> None:
        self._prefix = check_prefix(prefix)
        self._connect: Callable[[], Transport] | None = None
        self._inherited: object = None
        self._prompt = False
        self._line: Transport = line_of(client)

    @classmethod
    def from_url(
        cls, url: str, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05
    ) -> Self:
        """Use what is at `url`; a connection may take `connect_timeout` seconds, and `deadline` each read of a reply.

        A redis:// URL or one of its kin: rediss, valkey, valkeys, unix; redis+cluster://host:port,host:port;
        redis+sentinel://host:port,host:port/service/database. Nothing is connected to before the first call, and
        nothing is retried below us: a take that timed out may have been carried out, and only we know its number.
        """
        found = look(url)
        del url  # what a traceback goes through shows no password
        return cls.at(sure_redis(found), prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)

    @classmethod
    def at(
        cls, address: Address, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05
    ) -> Self:
        """Use what is at an address, as `from_url` does."""
        factory.check_options(address)
        connect = partial(_connected, address, factory.timeouts(connect_timeout, deadline))
        store = cls(connect(), prefix=prefix)
        store._connect, store._prompt = connect, factory.is_prompt(address)
        return store

    def __repr__(self) -> str:
        return f"<RedisStore {self.address} prefix {shown(self._prefix)}>"

    @property
    def address(self) -> str:
        """Hosts, ports and database, or the socket's path; never a password."""
        return self._line.address

    @property
    def is_prompt(self) -> bool:
        """See Remote.is_prompt: so is a client of our own for one server, without TLS or health checks."""
        return self._prompt

    def part(self, key: str) -> str:
        """See Remote.part."""
        line = self._line
        return "" if isinstance(line, ServerTransport) else line.part(bucket_name(self._prefix, key))

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        line = self._line
        return read_grant(
            self._talk(line, line.run, "take", bucket_name(self._prefix, key), take_arguments(quota, ask))
        )

    def take_many(self, asks: Sequence[tuple[str, Quota, Ask]]) -> list[Grant | StoreUnavailable]:
        """See Pipelined: in one round trip by a client of our own for one server, one after the other by all others."""
        line = self._line
        if not isinstance(line, DirectTransport):
            return [self._taken(*each) for each in asks]
        calls = [(bucket_name(self._prefix, key), take_arguments(quota, ask)) for key, quota, ask in asks]
        replies = self._talk(line, _served, line, calls)
        return [self._outcome(each) for each in replies]

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        reply = self._run("give_back", bucket_name(self._prefix, key), give_back_arguments(quota, back))
        return int(reply[0])

    def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        return read_level(self._run("peek", bucket_name(self._prefix, key), peek_arguments(quota)))

    def probe(self, key: str) -> None:
        """See Remote.probe."""
        try:
            self._run("take", probe_name(self._prefix, key), take_arguments(PROBE_QUOTA, PROBE))
        except BucketUnavailable as error:
            if is_elsewhere(error):
                raise

    def after_fork(self) -> None:
        """Take a client of the child's own: a lock of the old one may be held by a thread that is the parent's.

        A client that the caller made stays; redis-py itself drops the parent's connections in the child.
        """
        if self._connect is not None:
            self._inherited = (self._inherited, self._line)  # never let go of: its destructor wants those locks too
            self._line = self._connect()

    def close(self) -> None:
        """Close the client if this store made it."""
        if self._connect is not None:
            self._line.close()

    def _run(self, name: str, bucket: str, arguments: Sequence[str | bytes]) -> Sequence[Any]:
        line = self._line
        return self._talk(line, line.run, name, bucket, arguments)

    def _talk(self, line: Transport, run: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            return run(*args)
        except FAILURES as error:
            if self._connect is not None:
                line.mend(error)
            raise failure(error, line.address) from error
        except NotPrompt:
            raise
        except BaseException as error:  # a signal handler raised, wherever it was
            untraced(error)
            self._abandon(line)
            raise

    def _outcome(self, reply: Any) -> Grant | StoreUnavailable:
        try:
            return failure(reply, self.address) if isinstance(reply, Exception) else read_grant(reply)
        except StoreUnavailable as error:
            return error

    def _taken(self, key: str, quota: Quota, ask: Ask) -> Grant | StoreUnavailable:
        try:
            return self.take(key, quota, ask)
        except StoreUnavailable as error:
            return error

    def _abandon(self, line: Transport) -> None:
        """Use none of the connections that there were: on one of them there may be the answer to another call."""
        if self._connect is not None and self._line is line:
            self._line = self._connect()


def line_of(client: "redis.Redis | redis.RedisCluster | Transport") -> Transport:
    """Return what runs the scripts by this client."""
    if isinstance(client, redis.RedisCluster):
        return ClusterTransport.of(client)
    return ServerTransport(client) if isinstance(client, redis.Redis) else client


def _served(line: DirectTransport, calls: Calls) -> list[Any]:
    """Return what became of each take; raises what is wrong with the server itself, if it served none of them."""
    replies = line.run_many("take", calls)
    if all(isinstance(each, Exception) and not isinstance(failure(each, ""), BucketUnavailable) for each in replies):
        raise replies[0]
    return replies


def _connected(address: Address, patience: factory.Timeouts) -> Transport:
    match address.topology:
        case "cluster":
            return ClusterTransport(str(address), partial(factory.cluster_client, address, patience))
        case "sentinel":
            return SentinelLine(factory.sentinel_client(address, patience))
        case _:
            return DirectTransport(factory.server_client(address, patience))
