"""Whose request it is: the values that keys are made of, and the client's address among them, as `ip`.

The address is that of the peer of the connection, or what proxies that are trusted say of it.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import AF_INET, inet_ntop, inet_pton
from typing import Any, Literal, TypeVar

from batchlimit.integrations.checks import FIRST, CheckName, Checks

Identity = Mapping[str, object]
Asked = TypeVar("Asked")
Identify = Callable[[Asked], Identity | None]
"""Returns the values for keys that a request has, in a thread."""
AsyncIdentify = Callable[[Asked], Identity | Awaitable[Identity | None] | None]
"""Returns them in a task, at once or to be awaited."""
_FORWARDED = frozenset((b"x-forwarded-for", b"forwarded"))
_is_port = re.compile(r"(?::[0-9]{1,5})?").fullmatch
Address = IPv4Address | IPv6Address
_NAT64, _SIX_TO_FOUR, _TEREDO = 0x64_FF9B << 64, 0x2002, 0x2001_0000
"""Prefixes of addresses that carry IPv4, as numbers: 64:ff9b::/96 without its last 32 bits, 2002::/16 and 2001::/32."""
_V4 = 0xFFFF_FFFF
_FURTHEST = 100
"""How many forwarded addresses are read at most, from the right."""


class TrustedProxies:
    """Finds the client behind proxies. Each proxy appends the address of whoever spoke to it, so the right end is true.

    It walks from the peer to the left, as long as it meets trusted proxies; the first other address is the client. What
    stands further left was written by the client, and is never read. If an entry is no address, the client is the proxy
    that wrote it: all such requests share one limit.

    Args:
        networks: the proxies' networks or addresses, such as ["10.0.0.0/8", "::1"]. "unix" is a peer without an
            address: a proxy that speaks through a Unix socket.
        hops: how many proxies there are at most (default None: as many as are in `networks`).
        header: the field that the proxies write, and the only one that is read: "x-forwarded-for" (default) or
            "forwarded" (RFC 7239). A client could write the other one.

    Raises:
        ValueError: there are no networks, a network has a typo, or hops is below 1.

    Example:
        >>> proxies = TrustedProxies(["10.0.0.0/8"])
        >>> proxies.client("10.0.0.7", [(b"x-forwarded-for", b"1.1.1.1, 203.0.113.9, 10.0.0.3")])
        '203.0.113.9'
        >>> proxies.client("203.0.113.9", [(b"x-forwarded-for", b"1.1.1.1")])
        '203.0.113.9'
    """

    def __init__(
        self,
        networks: Iterable[str],
        *,
        hops: int | None = None,
        header: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for",
    ) -> None:
        if isinstance(networks, str):
            raise TypeError(f"networks are a list of texts, not one text: [{networks!r}]")
        named = list(networks)
        self._trusts_unix = "unix" in named
        try:
            self._networks = tuple([ip_network(text) for text in named if text != "unix"])
        except ValueError as error:
            raise ValueError(f"no network of trusted proxies: {error}; write it as '10.0.0.0/8'") from None
        if not named:
            raise ValueError("no proxy is trusted: name networks, or leave `proxies` out")
        if hops is not None and hops < 1:
            raise ValueError(f"hops must be at least 1, or None, not {hops}")
        if header not in ("x-forwarded-for", "forwarded"):
            raise ValueError(f"header is 'x-forwarded-for' or 'forwarded', not {header!r}")
        self._hops = _FURTHEST if hops is None else min(hops, _FURTHEST)
        self._header, self._has_pairs = header.encode(), header == "forwarded"
        self._is_trusted = lru_cache(maxsize=4096)(
            lambda text: (address := parse(text)) is not None and any(address in each for each in self._networks)
        )

    def __repr__(self) -> str:
        unix = ["unix"] if self._trusts_unix else []
        return f"<TrustedProxies {', '.join([*unix, *map(str, self._networks)])}, at most {self._hops} hops>"

    def client(self, peer: str | None, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return the address of the client.

        Args:
            peer: the address of the connection's other end; None: it has none, as a Unix socket.
            headers: names in lower case and values, as ASGI has them.

        Returns:
            An address as text; the peer if it is no trusted proxy; None if there is none.
        """
        if not (self._trusts_unix if peer is None else self._is_trusted(peer)):
            return peer
        written = [value for name, value in headers if name == self._header]
        client = peer
        value = b",".join(written).decode("latin-1")
        entries = _from_forwarded(value) if self._has_pairs else reversed(value.rsplit(",", _FURTHEST))
        for _, entry in zip(range(self._hops), entries, strict=False):
            if (address := parse(entry)) is None:
                return client
            client = str(address)
            if not self._is_trusted(client):
                return client
        return client


@lru_cache(maxsize=8192)
def network(text: str, v6: int = 56) -> str:
    """Return what an address is limited by: itself, or the network of an IPv6 address.

    One customer has a network of 2**64 addresses and more, so a limit by single IPv6 addresses is none.

    Args:
        text: an address.
        v6: bits of an IPv6 address that count (default 56; 128: all).

    Returns:
        The address or the network; the text itself if it is no address. An IPv6 address that stands for an IPv4
        address is that IPv4 address: a mapped one, and those of NAT64 (64:ff9b::/96), 6to4 and Teredo.

    Example:
        >>> network("2001:db8:0:12ff::1"), network("::ffff:192.0.2.1"), network("192.0.2.1")
        ('2001:db8:0:1200::/56', '192.0.2.1', '192.0.2.1')
    """
    try:
        return inet_ntop(AF_INET, inet_pton(AF_INET, text))  # as nearly always, in a quarter of the time
    except (OSError, ValueError):
        address = parse(text)
    if isinstance(address, IPv6Address):  # one that carries an IPv4 address is that: its network is many keys, or all
        number = int(address)
        if number >> 32 == _NAT64:
            address = IPv4Address(number & _V4)
        elif number >> 112 == _SIX_TO_FOUR:
            address = IPv4Address(number >> 80 & _V4)
        elif number >> 96 == _TEREDO:
            address = IPv4Address(~number & _V4)
    if address is None:
        return text
    if isinstance(address, IPv4Address) or v6 == 128:
        return str(address)
    return f"{IPv6Address(int(address) >> 128 - v6 << 128 - v6)}/{v6}"


def parse(text: str) -> Address | None:
    """Return the address in a text, without its port, brackets and zone; None if there is none."""
    try:
        return IPv4Address(inet_pton(AF_INET, text))  # as nearly always, in a quarter of the time
    except (OSError, ValueError):
        text = text.strip(" \t")
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        if not bracket or not _is_port(port):
            return None
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not _is_port(f":{port}"):
            return None
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def _from_forwarded(value: str) -> Iterator[str]:
    """Return whom the elements of Forwarded are for, the last first; "" where one does not say."""
    for element in _from_right(value, ","):
        told = ""
        for pair in _from_right(element, ";"):
            name, _, found = pair.partition("=")
            if name.strip(" \t").lower() == "for":
                found = found.strip(" \t")
                is_quoted = len(found) > 1 and found[0] == found[-1] == '"'
                told = "" if told else found[1:-1] if is_quoted else found  # said twice, it is not said
        yield told


def _from_right(value: str, mark: str) -> Iterator[str]:
    """Split at a mark outside of quotes, from the right: no quote of the client's hides what the last proxy wrote."""
    end, quoted = len(value), False
    for at in range(len(value) - 1, -1, -1):
        if value[at] == '"' and not (quoted and at > 0 and value[at - 1] == "\\"):
            quoted = not quoted
        elif value[at] == mark and not quoted:
            yield value[at + 1 : end]
            end = at
    yield value[:end]


class FailedIdentity(Mapping[str, object]):
    """Values for keys where the function that tells who asks has raised: rules that need more have no key."""

    def __init__(self, known: Mapping[str, object], error: Exception) -> None:
        self._known, self._error = known, error
        if isinstance(error, KeyError):  # a mapping that raises it says "missing", and a key would be made of the path
            self._error = RuntimeError(f"identify raised {error!r}")
            self._error.__cause__ = error

    def __getitem__(self, name: str) -> object:
        """Return what is known; else raise what was raised."""
        if name in self._known:
            return self._known[name]
        raise self._error

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class Addresses:
    """Tells whose request it is by address."""

    def __init__(self, proxies: TrustedProxies | None = None, v6: int = 56, *, checks: Checks | None = None) -> None:
        if not 1 <= v6 <= 128:
            raise ValueError(f"an IPv6 address has 1 to 128 bits that count, not {v6}")
        if not isinstance(proxies, TrustedProxies | None):
            raise TypeError(f'proxies is like TrustedProxies(["10.0.0.0/8"]), not {proxies!r}')
        self._proxies, self._v6 = proxies, v6
        self._checks = checks or Checks()
        mine: CheckName = "forwarded-untrusted" if proxies is None else "proxy-unseen"
        self._looks = FIRST if mine in self._checks.on else 0

    def of(self, peer: str | None, port: int, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, object]:
        """Return the address of the client as `ip`; a port of 0 says that the server has read a forwarding field."""
        client = peer if self._proxies is None else self._proxies.client(peer, headers)
        if self._looks > 0:
            self._looks -= 1
            if self._proxies is None:
                if port and any(name in _FORWARDED for name, _ in headers):
                    self._looks = 0
                    self._checks.tell("forwarded-untrusted")
            elif client != peer or (peer and not port):
                self._looks = 0
            elif self._looks <= 0:
                self._checks.tell("proxy-unseen", FIRST, self._proxies)
        return {} if client is None else {"ip": network(client, self._v6)}


def joined(known: dict[str, object], told: object) -> Identity:
    """Return what keys are made of: the address, and what a function of the user's own told of the request."""
    if told is None:
        return known
    if not isinstance(told, Mapping):
        error = TypeError(f"identify returns a mapping such as {{'user': 'ann'}}, or None, not {type(told).__name__}")
        return FailedIdentity(known, error)
    return {**known, **told}


def identity_of(
    known: dict[str, object], identify: Callable[..., object] | None, request: object, *, may_await: bool = False
) -> Any:
    """Return what keys are made of, as an Identity; as a coroutine, if `identify` has to be awaited and `may_await`."""
    if identify is None:
        return known
    try:
        told = identify(request)
        if told.__class__ is dict:  # as nearly always
            return {**known, **told}
        return _awaited(known, told) if may_await and inspect.isawaitable(told) else joined(known, told)
    except Exception as error:  # noqa: BLE001  the rules that need more than the address have no key
        return FailedIdentity(known, error)


async def _awaited(known: dict[str, object], told: Awaitable[object]) -> Identity:
    try:
        return joined(known, await told)
    except Exception as error:  # noqa: BLE001  as above
        return FailedIdentity(known, error)
