"""The clients of redis-py for each kind of address, for threads and for tasks.

None of them retries. A take that timed out may have been carried out, and only the reservoir knows its number. A
cluster did not carry out what it answers with MOVED, ASK or TRYAGAIN: there redis-py sends the call where it belongs.
"""

import encodings.idna  # noqa: F401  the first getaddrinfo would import it: a fork meanwhile would block the child for ever
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.retry
import redis.sentinel
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection

from batchlimit.stores.client.address import Address
from batchlimit.stores.client.async_transport import PrimaryPool
from batchlimit.stores.client.deadline import DeadlineConnection, DeadlineUnixConnection
from batchlimit.stores.client.settings import SENTINEL, check_known, parameters
from batchlimit.stores.client.watch import PausingConnection, PausingSSLConnection, PausingUnixConnection

try:
    from redis.driver_info import DriverInfo
except ImportError:  # redis-py before 7.2
    _INTRODUCTION: dict[str, Any] = {}
else:
    # Made once. redis-py would read its own version from disk for each connection: 0.9 ms, on the event loop.
    _INTRODUCTION = {"driver_info": DriverInfo()}

_PAUSING = {"redis": PausingConnection, "rediss": PausingSSLConnection, "unix": PausingUnixConnection}
_PLAIN = {"redis": Connection, "rediss": SSLConnection, "unix": UnixDomainSocketConnection}
_DEADLINE = {"redis": DeadlineConnection, "unix": DeadlineUnixConnection}

Timeouts = dict[str, Any]


def timeouts(connect_timeout: float, deadline: float) -> Timeouts:
    """Return redis-py's timeouts (s). Its one for reads holds for the greeting too: hence the sum."""
    return {"socket_connect_timeout": connect_timeout, "socket_timeout": connect_timeout + deadline}


def is_prompt(address: Address) -> bool:
    """Whether a client for threads keeps to a deadline_scope: one server, without TLS or health checks.

    TLS has sockets of its own, a health check takes its own time, and the others talk to more than one node.
    """
    return not (address.topology or address.tls or address.options.get("health_check_interval"))


def check_options(address: Address) -> None:
    """Raise ValueError for an option that redis-py's client for threads does not take, or would ignore."""
    _check(address, _PLAIN, redis.Redis, redis.cluster.REDIS_ALLOWED_KEYS, "a cluster, for threads")


def check_async_options(address: Address) -> None:
    """See check_options; for the client for tasks."""
    of_cluster = parameters(redis.asyncio.RedisCluster)
    _check(address, _PAUSING, redis.asyncio.Redis, of_cluster, "a cluster, for tasks")


def _check(address: Address, kinds: dict[str, Any], client: Any, of_cluster: Iterable[str], cluster: str) -> None:
    names = list(address.options)
    if address.topology == "cluster":
        check_known(names, of_cluster, cluster)
        return
    of_pool = {"max_connections", *parameters(kinds[address.scheme])}
    if not address.topology:
        check_known(names, of_pool, f"{address.scheme}://")
        return
    theirs = [name for name in names if name.startswith(SENTINEL)]
    check_known(set(names).difference(theirs), of_pool, "the servers of sentinels")
    check_known([name.removeprefix(SENTINEL) for name in theirs], parameters(client), "sentinels")


def server_client(address: Address, limits: Timeouts) -> "redis.Redis":
    """Return a client of one server, for threads."""
    kind: type[Any] = (_DEADLINE if is_prompt(address) else _PLAIN)[address.scheme]
    options = _common(redis.Redis, address, limits) | address.options
    return redis.Redis.from_pool(_untyped(redis).ConnectionPool(connection_class=kind, **options))


def sentinel_client(address: Address, limits: Timeouts) -> "redis.Redis":
    """Return a client of the primary that sentinels know, for threads."""
    common = _common(redis.Redis, address, limits) | {"ssl": address.tls}
    options, others = _sentinel_options(address)
    manager = _untyped(redis.sentinel).Sentinel(
        address.nodes, sentinel_kwargs={**common, **others}, **{**common, **options}
    )
    client: redis.Redis = manager.master_for(address.service)
    return client


def cluster_client(address: Address, limits: Timeouts) -> "redis.RedisCluster":
    """Return a client of a cluster, for threads. This connects, to learn the nodes."""
    nodes = [_untyped(redis.cluster).ClusterNode(host, port) for host, port in address.nodes]
    return redis.RedisCluster(startup_nodes=nodes, **_cluster_options(redis.RedisCluster, address, limits))


def async_server_client(address: Address, limits: Timeouts) -> "redis.asyncio.Redis":
    """Return a client of one server, for tasks."""
    kind: type[Any] = _PAUSING[address.scheme]
    options = _common(redis.asyncio.Redis, address, limits) | _INTRODUCTION | address.options
    return redis.asyncio.Redis.from_pool(_untyped(redis.asyncio).ConnectionPool(connection_class=kind, **options))


def async_sentinel_client(address: Address, limits: Timeouts) -> "redis.asyncio.Redis":
    """Return a client of the primary that sentinels know, for tasks."""
    common = _common(redis.asyncio.Redis, address, limits) | _INTRODUCTION | {"ssl": address.tls}
    options, others = _sentinel_options(address)
    manager = _untyped(redis.asyncio.sentinel).Sentinel(
        list(address.nodes), sentinel_kwargs={**common, **others}, **{**common, **options}
    )
    client: redis.asyncio.Redis = manager.master_for(address.service, connection_pool_class=PrimaryPool)
    return client


def async_cluster_client(address: Address, limits: Timeouts) -> "redis.asyncio.RedisCluster":
    """Return a client of a cluster, for tasks. It connects when it is first used."""
    nodes = [redis.asyncio.cluster.ClusterNode(host, port) for host, port in address.nodes]
    options = _cluster_options(redis.asyncio.RedisCluster, address, limits)
    # A MOVED names the slot's new node, which is enough. To read all nodes anew would close the connections on which
    # other callers wait.
    return redis.asyncio.RedisCluster(startup_nodes=nodes, reinitialize_steps=0, **options, **_INTRODUCTION)


def _untyped(module: Any) -> Any:
    """Return the module without types: some of redis-py's are missing, others wrong."""
    return module


def _common(kind: Callable[..., Any], address: Address, limits: Timeouts) -> Timeouts:
    """Return the options of all clients, by the class of the client: they do not retry."""
    is_async = kind.__module__.startswith("redis.asyncio")
    retry = redis.asyncio.retry.Retry(NoBackoff(), 0) if is_async else redis.retry.Retry(NoBackoff(), 0)
    found = {**limits, "retry": retry}
    if address.tls and not {"ssl_cert_reqs", "ssl_check_hostname"} & address.options.keys():
        found["ssl_check_hostname"] = True  # that the certificate is for the name; redis-py 6 and later do it unasked
    if "maint_notifications_config" in inspect.signature(kind).parameters:
        from redis.maint_notifications import MaintNotificationsConfig  # redis-py before 7 has none

        # With maintenance notifications redis-py lengthens its timeouts, reconnects within a call, and keeps a
        # connection that still has the unread reply of an earlier call.
        found["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
    return found


def _cluster_options(kind: Callable[..., Any], address: Address, limits: Timeouts) -> Timeouts:
    found = _common(kind, address, limits) | {"ssl": address.tls}
    if "cluster_error_retry_attempts" in inspect.signature(kind).parameters and redis.__version__.startswith("5."):
        found["cluster_error_retry_attempts"] = 0  # later versions ask `retry`
    return found | {"require_full_coverage": False} | address.options  # a slot without a node must not fail the others


def _sentinel_options(address: Address) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the primary and those of the sentinels. Options of TLS are for both."""
    given = address.options
    options = {name: value for name, value in given.items() if not name.startswith(SENTINEL)}
    others = {name.removeprefix(SENTINEL): given[name] for name in given if name.startswith(SENTINEL)}
    return options, {name: options[name] for name in options if name.startswith("ssl_")} | others
