"""Where a store is: one server, a cluster, or the primary that sentinels name. Shown without a password."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from batchlimit.base.redaction import redacted

Nodes = tuple[tuple[str, int], ...]

_TLS = "SSLConnection"  # by name: redis-py has one for threads and one for tasks, and the latter may not be imported


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is. `repr` shows no options, because a password may be among them."""

    scheme: str
    """redis, rediss or unix, as in redis-py; or memory or embedded, the stores without an operator."""
    topology: str = ""
    """cluster, sentinel, or "" for a single server."""
    nodes: Nodes = ()
    """Hosts and ports of a cluster or of sentinels. A single server has them among the options."""
    service: str = ""
    """The sentinels' name for the primary."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for redis-py."""

    def __repr__(self) -> str:
        return f"<Address {self}>"

    def __str__(self) -> str:
        if not self.topology:
            return server_address(self.options, self.scheme)
        path = f"/{self.service}/{self.options.get('db') or 0}" if self.topology == "sentinel" else ""
        return f"{self.scheme}+{self.topology}://{_listed(self.nodes)}{path}"

    @property
    def tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.scheme == "rediss"


def client_address(client: Any) -> str:
    """Return the address of a redis-py client, for threads or for tasks, without a password."""
    if (manager := getattr(client, "nodes_manager", None)) is not None:
        nodes = _listed((each.host, each.port) for each in manager.startup_nodes.values())
        return f"{_cluster_scheme(manager.connection_kwargs)}+cluster://{nodes}"
    pool = client.connection_pool
    options, scheme = pool.connection_kwargs, _scheme(pool.connection_class)
    if (manager := getattr(pool, "sentinel_manager", None)) is None:
        return server_address(options, scheme)
    known = (each.connection_pool.connection_kwargs for each in manager.sentinels)
    nodes = _listed((each["host"], each["port"]) for each in known)
    return f"{scheme}+sentinel://{nodes}/{redacted(str(pool.service_name))}/{options.get('db') or 0}"


def server_address(options: dict[str, Any], scheme: str = "redis") -> str:
    """Return the address of one server from the connection options of a redis-py client."""
    if path := options.get("path"):
        return f"unix://{os.fspath(path)}"
    host = redacted(str(options.get("host", "localhost")))  # a user may have passed a URL as the host
    return f"{scheme}://{host}:{options.get('port', 6379)}/{options.get('db') or 0}"


def _scheme(connection: type) -> str:
    return "rediss" if any(each.__name__ == _TLS for each in connection.__mro__) else "redis"


def _cluster_scheme(options: dict[str, Any]) -> str:
    return "rediss" if options.get("ssl") else _scheme(options.get("connection_class", object))


def _listed(nodes: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{redacted(str(host))}:{port}" for host, port in nodes)
