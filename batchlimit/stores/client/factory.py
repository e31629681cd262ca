"""The clients of redis-py for each kind of address; `api` is redis for threads, or redis.asyncio for tasks.

None of them retries. A take that timed out may have been carried out, and only the reservoir knows its number. A
cluster did not carry out what it answers with MOVED, ASK or TRYAGAIN: there redis-py sends the call where it belongs.
"""

import encodings.idna  # noqa: F401  the first getaddrinfo would import it: a fork meanwhile would block the child for ever
import inspect
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
from batchlimit.stores.client.deadline import (
    DeadlineConnection,
    DeadlineUnixConnection,
    PausingConnection,
    PausingSSLConnection,
    PausingUnixConnection,
)
from batchlimit.stores.client.sentinel import PrimaryPool
from batchlimit.stores.client.settings import SENTINEL, check_known, parameters

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
    """Whether a client for threads keeps to the deadline of CALL: one server, without TLS or health checks.

    TLS has sockets of its own, a health check takes its own time, and the others talk to more than one node.
    """
    return not (address.topology or address.scheme == "rediss" or address.options.get("health_check_interval"))


def check_options(api: Any, address: Address) -> None:
    """Raise ValueError for an option that this API's client of redis-py does not take, or would ignore."""
    names = list(address.options)
    if address.topology == "cluster":
        known = parameters(api.RedisCluster) if api is redis.asyncio else redis.cluster.REDIS_ALLOWED_KEYS
        check_known(names, known, f"a cluster, for {'tasks' if api is redis.asyncio else 'threads'}")
        return
    of_pool = {"max_connections", *parameters((_PAUSING if api is redis.asyncio else _PLAIN)[address.scheme])}
    if not address.topology:
        check_known(names, of_pool, f"{address.scheme}://")
        return
    theirs = [name for name in names if name.startswith(SENTINEL)]
    check_known(set(names).difference(theirs), of_pool, "the servers of sentinels")
    check_known([name.removeprefix(SENTINEL) for name in theirs], parameters(api.Redis), "sentinels")


def server_client(api: Any, address: Address, limits: Timeouts) -> Any:
    """Return a client of one server."""
    kinds: Any = _PAUSING if api is redis.asyncio else _DEADLINE if is_prompt(address) else _PLAIN
    options = _common(api, api.Redis, address, limits) | address.options
    return api.Redis.from_pool(api.ConnectionPool(connection_class=kinds[address.scheme], **options))


def sentinel_client(api: Any, address: Address, limits: Timeouts) -> Any:
    """Return a client of the primary that sentinels know. Options of TLS are for the sentinels, too."""
    common, given = _common(api, api.Redis, address, limits) | {"ssl": address.scheme == "rediss"}, address.options
    options = {name: value for name, value in given.items() if not name.startswith(SENTINEL)}
    others = {name: value for name, value in options.items() if name.startswith("ssl_")}
    others |= {name.removeprefix(SENTINEL): given[name] for name in given if name.startswith(SENTINEL)}
    manager = api.sentinel.Sentinel(list(address.nodes), sentinel_kwargs=common | others, **(common | options))
    pool = {"connection_pool_class": PrimaryPool} if api is redis.asyncio else {}
    return manager.master_for(address.service, **pool)


def cluster_client(api: Any, address: Address, limits: Timeouts) -> Any:
    """Return a client of a cluster. That for threads connects now, to learn the nodes; that for tasks, later."""
    kind = api.RedisCluster
    options = _common(api, kind, address, limits) | {"ssl": address.scheme == "rediss"}
    if "cluster_error_retry_attempts" in inspect.signature(kind).parameters and redis.__version__.startswith("5."):
        options["cluster_error_retry_attempts"] = 0  # later versions ask `retry`
    if api is redis.asyncio:
        # A MOVED names the slot's new node, which is enough. To read all nodes anew would close the connections on
        # which other callers wait.
        options["reinitialize_steps"] = 0
    options["require_full_coverage"] = False  # a slot without a node must not fail the others
    nodes = [api.cluster.ClusterNode(host, port) for host, port in address.nodes]
    return kind(startup_nodes=nodes, **(options | address.options))


def _common(api: Any, kind: Any, address: Address, limits: Timeouts) -> Timeouts:
    """Return the options of all clients, by the class of the client: they do not retry."""
    found = {**limits, "retry": api.retry.Retry(NoBackoff(), 0)}
    if api is redis.asyncio:
        found |= _INTRODUCTION
    if address.scheme == "rediss" and not {"ssl_cert_reqs", "ssl_check_hostname"} & address.options.keys():
        found["ssl_check_hostname"] = True  # that the certificate is for the name; redis-py 6 and later do it unasked
    if "maint_notifications_config" in inspect.signature(kind).parameters:
        from redis.maint_notifications import MaintNotificationsConfig  # redis-py before 7 has none

        # With maintenance notifications redis-py lengthens its timeouts, reconnects within a call, and keeps a
        # connection that still has the unread reply of an earlier call.
        found["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
    return found
