"""Where a store is, and the grammar of its URL. Messages show nothing of a wrong URL: any part may be the password."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from batchlimit.base.redaction import redacted
from batchlimit.stores.client.settings import SENTINEL, InvalidUrl, Options, check_tls, read_options

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
        if path := self.options.get("path"):
            return f"unix://{os.fspath(path)}"
        database = self.options.get("db") or 0
        if not self.topology:
            place = self.options.get("host", "localhost"), self.options.get("port", 6379)
            return f"{self.scheme}://{_listed([place])}/{database}"
        of_primary = f"/{self.service}/{database}" if self.topology == "sentinel" else ""
        return f"{self.scheme}+{self.topology}://{_listed(self.nodes)}{of_primary}"


def client_address(client: Any) -> str:
    """Return the address of a redis-py client, for threads or for tasks, without a password."""
    if (manager := getattr(client, "nodes_manager", None)) is not None:
        options = manager.connection_kwargs
        scheme = "rediss" if options.get("ssl") else _scheme(options.get("connection_class", object))
        starting = tuple((each.host, each.port) for each in manager.startup_nodes.values())
        return str(Address(scheme, "cluster", starting))
    pool = client.connection_pool
    options, scheme = pool.connection_kwargs, _scheme(pool.connection_class)
    if (manager := getattr(pool, "sentinel_manager", None)) is None:
        return str(Address(scheme, options=options))
    known = (each.connection_pool.connection_kwargs for each in manager.sentinels)
    nodes = tuple((each["host"], each["port"]) for each in known)
    return str(Address(scheme, "sentinel", nodes, redacted(str(pool.service_name)), options))


def _scheme(connection: type) -> str:
    return "rediss" if any(each.__name__ == _TLS for each in connection.__mro__) else "redis"


def _listed(nodes: Iterable[tuple[str, int]]) -> str:
    hosts = ((redacted(str(host)), port) for host, port in nodes)  # a user may have passed a URL as the host
    return ",".join(f"[{host}]:{port}" if host.count(":") > 1 else f"{host}:{port}" for host, port in hosts)


REDIS = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
"""Schemes of Redis and Valkey, and redis-py's names for them."""
TOPOLOGIES = ("cluster", "sentinel")
"""May follow such a scheme of TCP after a plus."""
OWN = ("memory", "embedded")
"""Schemes of the stores without an operator; nothing follows the scheme."""

_KNOWN = ", ".join(f"{each}://" for each in (*REDIS, *(f"redis+{each}" for each in TOPOLOGIES), *OWN))
_FORM = {
    "redis": "redis://user:password@host:6379/0?option=value",
    "unix": "unix://user:password@/path/to/socket?db=0, so three slashes where there is no user",
    "cluster": "redis+cluster://user:password@host:port,host:port?option=value",
    "sentinel": "redis+sentinel://user:password@host:port,host:port/service/0?option=value",
}
_ENCODE = (
    "percent-encode each @ # / ? and % in the name and the password, as urllib.parse.quote(password, safe='') does"
)
_DATABASE = "the database after the host must be a whole number, as in redis://host/0"


def look(url: object) -> Address | Exception:
    """Return the address, or what is wrong: raised where no frame, which reporters capture, holds the URL."""
    try:
        return read_url(url)
    except (TypeError, ValueError) as error:
        return error.with_traceback(None)


def sure(found: Address | Exception) -> Address:
    """Return an address, or raise the exception that `look` found."""
    if isinstance(found, Exception):
        raise found
    return found


def read_url(url: object) -> Address:
    """Return the address in `url`. The ValueError for a wrong one shows nothing of it but names of options."""
    if not isinstance(url, str):
        raise TypeError(f"a store's URL must be a str, not {type(url).__name__}")
    scheme, colon, rest = url.partition(":")
    base, _, topology = scheme.partition("+")
    is_alone = base in (*OWN, "unix")  # nothing may follow such a scheme after a plus
    if not colon or base not in (*OWN, *REDIS) or topology not in (("",) if is_alone else ("", *TOPOLOGIES)):
        is_scheme = colon and re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme, re.IGNORECASE)
        what = f"a URL of the scheme {scheme!r}" if is_scheme else "a URL without a scheme"
        raise ValueError(f"no store for {what}: write it as redis://localhost:6379/0; known are {_KNOWN}")
    if not rest.startswith("//"):
        raise ValueError(f"a URL of {scheme} cannot be read: missing '//' after {scheme}:")
    reason = ""
    try:
        return _read(base, topology, rest.removeprefix("//"))
    except InvalidUrl as slip:
        reason = str(slip)
    except ValueError:
        reason = f"it is {_FORM[topology or ('unix' if base == 'unix' else 'redis')]}; {_ENCODE}"
    raise ValueError(f"a URL of {scheme}:// cannot be read: {reason}")


def _read(base: str, topology: str, rest: str) -> Address:
    if base in OWN:
        if rest:
            raise InvalidUrl(f"nothing may follow {base}://")
        return Address(base)
    scheme = REDIS[base]
    parts = _split(scheme, rest)
    options = _options(parts, scheme)
    if topology == "sentinel":
        service, _, database = parts.path.removeprefix("/").partition("/")
        if not service:
            raise InvalidUrl("sentinels know a primary by its name: redis+sentinel://host:port/name/0")
        options = _with_database(options, database)
        return Address(scheme, "sentinel", _nodes(parts, 26379), unquote(service), options)
    if others := [name for name in options if name.startswith(SENTINEL)]:
        raise InvalidUrl(f"the option {others[0]!r} is for sentinels: redis+sentinel://host:port/name/0")
    if not topology:
        return _server(scheme, parts, options)
    options = _with_database(options, parts.path.removeprefix("/"))
    if options.pop("db", 0):
        raise InvalidUrl("a cluster has only one database: leave it out")
    return Address(scheme, "cluster", _nodes(parts, 6379), options=options)


def _split(scheme: str, rest: str) -> SplitResult:
    """Return the parts; raise InvalidUrl if a separator seems to belong to the password."""
    if re.search(r"#|[\t\r\n].", rest):  # urlsplit drops white space, and redis-py drops everything after the #
        raise InvalidUrl(_ENCODE)
    parts = urlsplit(f"{scheme}://{rest}")
    if parts.netloc.count("@") > 1 or (scheme != "unix" and "@" in parts.path):
        raise InvalidUrl(_ENCODE)
    return parts


def _options(parts: SplitResult, scheme: str) -> Options:
    """Return the options for redis-py, without host and port."""
    try:
        options = read_options(parts.query)
    except InvalidUrl:
        if "@" in parts.query and "@" not in parts.netloc:  # then the option's name may be a part of the password
            raise InvalidUrl(_ENCODE) from None
        raise
    if scheme != "rediss" and (of_tls := [name for name in options if name.removeprefix(SENTINEL).startswith("ssl_")]):
        raise InvalidUrl(f"the option {of_tls[0]!r} is for TLS alone: write rediss://, or leave it out")
    check_tls({name: value for name, value in options.items() if name.startswith("ssl_")})
    user = {"username": parts.username, "password": parts.password}
    return options | {name: unquote(value) for name, value in user.items() if value}


def _server(scheme: str, parts: SplitResult, options: Options) -> Address:
    if scheme == "unix":
        if parts.path in ("", "/") or parts.netloc.rpartition("@")[2]:
            raise ValueError
        return Address(scheme, options=options | {"path": unquote(parts.path)})
    place: Options = {"host": unquote(parts.hostname)} if parts.hostname else {}
    if parts.port is not None:
        if not place:
            raise ValueError  # a port without a host: more likely the beginning of a password
        place["port"] = _port(parts)
    return Address(scheme, options=_with_database(options, parts.path.removeprefix("/")) | place)


def _with_database(options: Options, path: str) -> Options:
    """Add the database of the path. One among the options takes precedence, as in redis-py."""
    if not re.fullmatch("[0-9]{0,9}/?", path, re.ASCII):
        raise InvalidUrl(_DATABASE)
    number = path.removesuffix("/")
    return {"db": int(number), **options} if number else options


def _nodes(parts: SplitResult, default: int) -> tuple[tuple[str, int], ...]:
    found = []
    for each in parts.netloc.rpartition("@")[2].split(","):
        node = urlsplit(f"//{each}")
        if not node.hostname:
            raise ValueError
        found.append((node.hostname, default if node.port is None else _port(node)))
    return tuple(found)


def _port(parts: SplitResult) -> int:
    if not parts.port:
        raise InvalidUrl("the port must be a number from 1 to 65535")
    return parts.port
