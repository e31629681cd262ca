"""The clients of redis-py for each kind of address, for threads and for tasks.

None of them retries: a take that timed out may have been carried out, and only we know its number. What a cluster
answers with MOVED, ASK or TRYAGAIN was not carried out, and redis-py goes where it says.
"""

import encodings.idna  # noqa: F401  else the first getaddrinfo imports it: a fork amid that would block its child for ever
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
from batchlimit.stores.client.async_connections import CalmConnection, CalmSSLConnection, CalmUnixConnection
from batchlimit.stores.client.async_monitor import PrimaryPool
from batchlimit.stores.client.connections import DeadlineConnection, DeadlineUnixConnection
from batchlimit.stores.client.settings import SENTINEL, check_known, parameters

try:
    from redis.driver_info import DriverInfo
except ImportError:  # redis-py before 7.2
    _INTRODUCTION: dict[str, Any] = {}
else:
    # Made once: redis-py reads its own version from the disk for every connection, 0.9 ms each, on the event loop.
    _INTRODUCTION = {"driver_info": DriverInfo()}

_CALM = {"redis": CalmConnection, "rediss": CalmSSLConnection, "unix": CalmUnixConnection}
_PLAIN = {"redis": Connection, "rediss": SSLConnection, "unix": UnixDomainSocketConnection}
_PROMPT = {"redis": DeadlineConnection, "unix": DeadlineUnixConnection}

Timeouts = dict[str, Any]


def timeouts(connect_timeout: float, deadline: float) -> Timeouts:
    """Return how long a connection and each read of a reply may take (s), as redis-py's keywords.

    Those of the greeting belong to connecting, and redis-py has one timeout for all. What a caller waits for is bounded
    more closely above us, where a thread or a loop that is late is told from a server that is.
    """
    return {"socket_connect_timeout": connect_timeout, "socket_timeout": connect_timeout + deadline}


def is_prompt(address: Address) -> bool:
    """Whether a client for threads knows a hurry.

    TLS has sockets of its own, health checks take a time of their own, and the others talk to more than one node.
    """
    return not (address.topology or address.tls or address.options.get("health_check_interval"))


def check_options(address: Address) -> None:
    """Raise ValueError for an option that redis-py's client for threads does not take, or would drop in silence."""
    names = list(address.options)
    match address.topology:
        case "cluster":
            check_known(names, redis.cluster.REDIS_ALLOWED_KEYS, "a cluster, for threads")
        case "sentinel":
            _check_with_sentinels(names, _PLAIN[address.scheme], redis.Redis)
        case _:
            check_known(names, _of_pool(_PLAIN[address.scheme]), f"{address.scheme}://")


def check_async_options(address: Address) -> None:
    """See check_options; of the client for tasks."""
    names = list(address.options)
    match address.topology:
        case "cluster":
            check_known(names, parameters(redis.asyncio.RedisCluster), "a cluster, for tasks")
        case "sentinel":
            _check_with_sentinels(names, _CALM[address.scheme], redis.asyncio.Redis)
        case _:
            check_known(names, _of_pool(_CALM[address.scheme]), f"{address.scheme}://")


def _check_with_sentinels(names: list[str], connection: type[Any], client: type[Any]) -> None:
    theirs = [name for name in names if name.startswith(SENTINEL)]
    check_known(set(names).difference(theirs), _of_pool(connection), "the servers of sentinels")
    check_known([name.removeprefix(SENTINEL) for name in theirs], parameters(client), "sentinels")


def _of_pool(connection: type[Any]) -> set[str]:
    return {"max_connections", *parameters(connection)}


def server_client(address: Address, patience: Timeouts) -> "redis.Redis":
    """Return a client of one server, for threads."""
    kind: type[Any] = (_PROMPT if is_prompt(address) else _PLAIN)[address.scheme]
    options: Timeouts = {**patience, **_patient(redis.Redis), **_named(address), **address.options}
    return redis.Redis.from_pool(_untyped(redis).ConnectionPool(connection_class=kind, **options))


def sentinel_client(address: Address, patience: Timeouts) -> "redis.Redis":
    """Return a client of the primary that sentinels know, for threads."""
    common = {**patience, **_patient(redis.Redis), "ssl": address.tls, **_named(address)}
    options, others = _sentinel_options(address)
    manager = _untyped(redis.sentinel).Sentinel(
        address.nodes, sentinel_kwargs={**common, **others}, **{**common, **options}
    )
    client: redis.Redis = manager.master_for(address.service)
    return client


def cluster_client(address: Address, patience: Timeouts) -> "redis.RedisCluster":
    """Return a client of a cluster, for threads. This connects: it wants to know the nodes."""
    nodes = [_untyped(redis.cluster).ClusterNode(host, port) for host, port in address.nodes]
    return redis.RedisCluster(startup_nodes=nodes, **_cluster_options(redis.RedisCluster, address, patience))


def async_server_client(address: Address, patience: Timeouts) -> "redis.asyncio.Redis":
    """Return a client of one server, for tasks."""
    kind: type[Any] = _CALM[address.scheme]
    options = {**patience, **_async_patient(redis.asyncio.Redis), **_INTRODUCTION, **_named(address), **address.options}
    return redis.asyncio.Redis.from_pool(_untyped(redis.asyncio).ConnectionPool(connection_class=kind, **options))


def async_sentinel_client(address: Address, patience: Timeouts) -> "redis.asyncio.Redis":
    """Return a client of the primary that sentinels know, for tasks."""
    common = {**patience, **_async_patient(redis.asyncio.Redis), **_INTRODUCTION, "ssl": address.tls, **_named(address)}
    options, others = _sentinel_options(address)
    manager = _untyped(redis.asyncio.sentinel).Sentinel(
        list(address.nodes), sentinel_kwargs={**common, **others}, **{**common, **options}
    )
    client: redis.asyncio.Redis = manager.master_for(address.service, connection_pool_class=PrimaryPool)
    return client


def async_cluster_client(address: Address, patience: Timeouts) -> "redis.asyncio.RedisCluster":
    """Return a client of a cluster, for tasks. It connects when it is first used."""
    nodes = [redis.asyncio.cluster.ClusterNode(host, port) for host, port in address.nodes]
    options = _cluster_options(redis.asyncio.RedisCluster, address, patience)
    # A MOVED tells where the slot is now, and that will do: to begin anew with all nodes would close the connections on
    # which other callers wait.
    return redis.asyncio.RedisCluster(startup_nodes=nodes, reinitialize_steps=0, **options, **_INTRODUCTION)


def _untyped(module: Any) -> Any:
    """Return the module: parts of redis-py have no types, others have wrong ones."""
    return module


def _named(address: Address) -> dict[str, Any]:
    """Want the certificate to be for the name in the URL, which redis-py before 6 does only if told."""
    told = {"ssl_cert_reqs", "ssl_check_hostname"} & address.options.keys()
    return {"ssl_check_hostname": True} if address.tls and not told else {}


def _patient(kind: Callable[..., Any]) -> dict[str, Any]:
    return {"retry": redis.retry.Retry(NoBackoff(), 0), **_undisturbed(kind)}


def _async_patient(kind: Callable[..., Any]) -> dict[str, Any]:
    return {"retry": redis.asyncio.retry.Retry(NoBackoff(), 0), **_undisturbed(kind)}


def _undisturbed(kind: Callable[..., Any]) -> dict[str, Any]:
    """Decline the news of a server that moves.

    With them redis-py lengthens its timeouts, reconnects amid a call, and keeps a connection that has more to read than
    it should: the answer of a call before.
    """
    if "maint_notifications_config" not in inspect.signature(kind).parameters:
        return {}
    from redis.maint_notifications import MaintNotificationsConfig  # redis-py before 7 has none

    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}


def _cluster_options(kind: Callable[..., Any], address: Address, patience: Timeouts) -> dict[str, Any]:
    patient = _patient(kind) if kind is redis.RedisCluster else _async_patient(kind)
    if "cluster_error_retry_attempts" in inspect.signature(kind).parameters and redis.__version__.startswith("5."):
        patient["cluster_error_retry_attempts"] = 0  # later versions ask `retry`
    # A slot that nobody serves must not take the others along.
    return {
        **patience,
        **patient,
        "ssl": address.tls,
        **_named(address),
        "require_full_coverage": False,
        **address.options,
    }


def _sentinel_options(address: Address) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is said of the primary, and what of the sentinels; what is said of TLS is said of both."""
    given = address.options
    options = {name: value for name, value in given.items() if not name.startswith(SENTINEL)}
    others = {name.removeprefix(SENTINEL): given[name] for name in given if name.startswith(SENTINEL)}
    return options, {name: options[name] for name in options if name.startswith("ssl_")} | others
