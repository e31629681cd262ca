"""What a URL says of one server, of a cluster or of sentinels; and what their clients say of where they are."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis.connection

REDIS = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
"""Schemes that a Redis client serves, and what redis-py calls them."""
TOPOLOGIES = ("cluster", "sentinel")
"""What may follow such a scheme of TCP after a plus."""

_GRAMMAR = {
    "": "the port must be a number, the password percent-encoded, and each option after the ? one of redis-py's",
    "cluster": "it is redis+cluster://user:password@host:port,host:port?options, the password percent-encoded",
    "sentinel": "it is redis+sentinel://user:password@host:port,host:port/service/database?options, the password "
    "percent-encoded",
}

Nodes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is. `repr` shows no options: there may be a password among them."""

    url: str
    """What redis-py is told; of several nodes the first."""
    tls: bool
    topology: str
    """One of TOPOLOGIES, or "" for a single server."""
    nodes: Nodes
    service: str
    """What the sentinels call the primary."""
    options: dict[str, Any]
    """What redis-py read in the URL, but for the host and the port."""

    def __repr__(self) -> str:
        return f"<Address {self}>"

    def __str__(self) -> str:
        if not self.topology:
            return server_address(self.options)
        scheme, path = "rediss" if self.tls else "redis", ""
        if self.topology == "sentinel":
            path = f"/{self.service}/{self.options.get('db') or 0}"
        return f"{scheme}+{self.topology}://{_listed(self.nodes)}{path}"


def read_url(url: str) -> Address:
    """Return what `url` names; ValueError, which shows nothing of it, where it names nothing."""
    scheme, slashes, rest = url.partition("://")
    base, _, topology = scheme.partition("+")
    if base not in REDIS or topology not in ("", *TOPOLOGIES) or (topology and base == "unix"):
        raise ValueError(
            f"no Redis has a URL of the scheme {scheme!r}" if slashes else "no store for a URL without a scheme"
        )
    address = None
    try:
        address = _read(REDIS[base], topology, rest)
    except (ValueError, AttributeError):
        pass  # its message may show a part of the password: it has no place in ours, nor among its causes
    if address is None:
        raise ValueError(f"a URL of {scheme}:// cannot be read: {_GRAMMAR[topology]}")
    return address


def _read(scheme: str, topology: str, rest: str) -> Address:
    if not topology:
        url = f"{scheme}://{rest}"
        options = _options(url)
        return Address(url, scheme == "rediss", "", ((options.get("host", ""), 0),), "", options)
    parts = urlsplit(f"redis://{rest}")
    user, at, hosts = parts.netloc.rpartition("@")
    nodes = tuple(_host_and_port(each, 26379 if topology == "sentinel" else 6379) for each in hosts.split(","))
    service, _, database = parts.path.strip("/").partition("/")
    if topology == "cluster":
        service, database = "", service
        if database not in ("", "0"):
            raise ValueError("a cluster has but one database")
    elif not service:
        raise ValueError("sentinels know primaries by name")
    host = f"[{nodes[0][0]}]" if ":" in nodes[0][0] else nodes[0][0]
    url = f"redis://{user}{at}{host}:{nodes[0][1]}/{int(database or 0)}?{parts.query}"
    options = _options(url)
    del options["host"], options["port"]
    return Address(url, scheme == "rediss", topology, nodes, service, options)


def _options(url: str) -> dict[str, Any]:
    parse: Any = redis.connection.parse_url
    options: dict[str, Any] = parse(url)
    return options


def _host_and_port(text: str, default: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("a node without a name")
    return parts.hostname, parts.port or default


def client_address(client: Any) -> str:
    """Return where a redis-py client, for threads or for tasks, goes: never a password."""
    if (manager := getattr(client, "nodes_manager", None)) is not None:
        return f"redis+cluster://{_listed((each.host, each.port) for each in manager.startup_nodes.values())}"
    pool = client.connection_pool
    options = pool.connection_kwargs
    if (manager := getattr(pool, "sentinel_manager", None)) is None:
        return server_address(options)
    known = (each.connection_pool.connection_kwargs for each in manager.sentinels)
    nodes = _listed((each["host"], each["port"]) for each in known)
    return f"redis+sentinel://{nodes}/{pool.service_name}/{options.get('db') or 0}"


def server_address(options: dict[str, Any]) -> str:
    """Return what the connection options of a redis-py client say of its one server."""
    if path := options.get("path"):
        return f"unix://{os.fspath(path)}"
    return f"redis://{options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db') or 0}"


def _listed(nodes: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{host}:{port}" for host, port in nodes)
