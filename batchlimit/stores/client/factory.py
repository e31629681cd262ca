"""The clients of redis-py for each kind of address, for threads and for tasks.

None of them retries. A take that timed out may have been carried out, and only the reservoir knows its number. A
cluster did not carry out what it answers with MOVED, ASK or TRYAGAIN: there redis-py sends the call where it belongs.
"""

import encodings.idna  # noqa: F401  the first getaddrinfo would import it: a fork meanwhile would block the child for ever
import inspect
from collections.abc import Callable
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
    names = list(address.options)
    match address.topology:
        case "cluster":
            check_known(names, redis.cluster.REDIS_ALLOWED_KEYS, "a cluster, for threads")
        case "sentinel":
            _check_with_sentinels(names, _PLAIN[address.scheme], redis.Redis)
        case _:
            check_known(names, _of_pool(_PLAIN[address.scheme]), f"{address.scheme}://")


def check_async_options(address: Address) -> None:
    """See check_options; for the client for tasks."""
    names = list(address.options)
    match address.topology:
        case "cluster":
            check_known(names, parameters(redis.asyncio.RedisCluster), "a cluster, for tasks")
        case "sentinel":
            _check_with_sentinels(names, _PAUSING[address.scheme], redis.asyncio.Redis)
        case _:
            check_known(names, _of_pool(_PAUSING[address.scheme]), f"{address.scheme}://")


def _check_with_sentinels(names: list[str], connection: type[Any], client: type[Any]) -> None:
    theirs = [name for name in names if name.startswith(SENTINEL)]
    check_known(set(names).difference(theirs), _of_pool(connection), "the servers of sentinels")
    check_known([name.removeprefix(SENTINEL) for name in theirs], parameters(client), "sentinels")


def _of_pool(connection: type[Any]) -> set[str]:
    return {"max_connections", *parameters(connection)}


def server_client(address: Address, limits: Timeouts) -> "redis.Redis":
    """Return a client of one server, for threads."""
    kind: type[Any] = (_DEADLINE if is_prompt(address) else _PLAIN)[address.scheme]
    options: Timeouts = {**limits, **_without_retry(redis.Redis), **_check_hostname(address), **address.options}
    return redis.Redis.from_pool(_untyped(redis).ConnectionPool(connection_class=kind, **options))


def sentinel_client(address: Address, limits: Timeouts) -> "redis.Redis":
    """Return a client of the primary that sentinels know, for threads."""
    common = {**limits, **_without_retry(redis.Redis), "ssl": address.tls, **_check_hostname(address)}
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
    options = {
        **limits,
        **_async_without_retry(redis.asyncio.Redis),
        **_INTRODUCTION,
        **_check_hostname(address),
        **address.options,
    }
    return redis.asyncio.Redis.from_pool(_untyped(redis.asyncio).ConnectionPool(connection_class=kind, **options))


def async_sentinel_client(address: Address, limits: Timeouts) -> "redis.asyncio.Redis":
    """Return a client of the primary that sentinels know, for tasks."""
    common = {
        **limits,
        **_async_without_retry(redis.asyncio.Redis),
        **_INTRODUCTION,
        "ssl": address.tls,
        **_check_hostname(address),
    }
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


def _check_hostname(address: Address) -> dict[str, Any]:
    """Check that the certificate is for the name in the URL; redis-py before 6 does so only on request."""
    told = {"ssl_cert_reqs", "ssl_check_hostname"} & address.options.keys()
    return {"ssl_check_hostname": True} if address.tls and not told else {}


def _without_retry(kind: Callable[..., Any]) -> dict[str, Any]:
    return {"retry": redis.retry.Retry(NoBackoff(), 0), **_without_notifications(kind)}


def _async_without_retry(kind: Callable[..., Any]) -> dict[str, Any]:
    return {"retry": redis.asyncio.retry.Retry(NoBackoff(), 0), **_without_notifications(kind)}


def _without_notifications(kind: Callable[..., Any]) -> dict[str, Any]:
    """Turn off maintenance notifications.

    With them redis-py lengthens its timeouts, reconnects within a call, and keeps a connection that still has the
    unread reply of an earlier call.
    """
    if "maint_notifications_config" not in inspect.signature(kind).parameters:
        return {}
    from redis.maint_notifications import MaintNotificationsConfig  # redis-py before 7 has none

    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}


def _cluster_options(kind: Callable[..., Any], address: Address, limits: Timeouts) -> dict[str, Any]:
    retry = _without_retry(kind) if kind is redis.RedisCluster else _async_without_retry(kind)
    if "cluster_error_retry_attempts" in inspect.signature(kind).parameters and redis.__version__.startswith("5."):
        retry["cluster_error_retry_attempts"] = 0  # later versions ask `retry`
    # A slot without a node must not fail the others.
    return {
        **limits,
        **retry,
        "ssl": address.tls,
        **_check_hostname(address),
        "require_full_coverage": False,
        **address.options,
    }


def _sentinel_options(address: Address) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the primary and those of the sentinels. Options of TLS are for both."""
    given = address.options
    options = {name: value for name, value in given.items() if not name.startswith(SENTINEL)}
    others = {name.removeprefix(SENTINEL): given[name] for name in given if name.startswith(SENTINEL)}
    return options, {name: options[name] for name in options if name.startswith("ssl_")} | others
