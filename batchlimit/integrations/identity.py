"""The values that keys are made of: they say who is asking. Every request has its client's address, as `ip`."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from batchlimit.integrations.address import TrustedProxies, network
from batchlimit.integrations.checks import FIRST, CheckName, Checks

Identity = Mapping[str, object]
_FORWARDED = frozenset((b"x-forwarded-for", b"forwarded"))


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
        self._looks = FIRST if self._checks.is_on(mine) else 0

    def of(self, peer: str | None, port: int, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, object]:
        """Return the address of the client as `ip`; a port of 0 says that the server has read a forwarding field."""
        client = peer if self._proxies is None else self._proxies.client(peer, headers)
        if self._looks > 0:
            self._look(peer, client, port, headers)
        return {} if client is None else {"ip": network(client, self._v6)}

    def _look(self, peer: str | None, client: str | None, port: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._looks -= 1
        if self._proxies is None:
            if port and any(name in _FORWARDED for name, _ in headers):
                self._looks = 0
                self._checks.tell("forwarded-untrusted")
        elif client != peer:
            self._looks = 0
        elif self._looks <= 0:
            self._checks.tell("proxy-unseen", FIRST, self._proxies)


def joined(known: dict[str, object], told: object) -> Identity:
    """Return what keys are made of: the address, and what a function of the user's own told of the request."""
    if told is None:
        return known
    if not isinstance(told, Mapping):
        error = TypeError(f"identify returns a mapping such as {{'user': 'ann'}}, or None, not {type(told).__name__}")
        return FailedIdentity(known, error)
    return {**known, **told}


def identity_of(known: dict[str, object], identify: Callable[..., object] | None, *request: object) -> Identity:
    """Return what keys are made of, where `identify` is no coroutine function."""
    if identify is None:
        return known
    try:
        told: Any = identify(*request)
        return {**known, **told} if told.__class__ is dict else joined(known, told)  # as nearly always
    except Exception as error:  # noqa: BLE001  the rules that need more than the address have no key
        return FailedIdentity(known, error)


def told_identity(known: dict[str, object], identify: Callable[..., object] | None, request: object) -> Any:
    """Return what keys are made of: an Identity, or a coroutine that returns one if `identify` has to be awaited."""
    if identify is None:
        return known
    try:
        told = identify(request)
        if told.__class__ is dict:  # as nearly always
            return {**known, **told}
        return _awaited(known, told) if inspect.isawaitable(told) else joined(known, told)
    except Exception as error:  # noqa: BLE001  the rules that need more than the address have no key
        return FailedIdentity(known, error)


async def _awaited(known: dict[str, object], told: Awaitable[object]) -> Identity:
    try:
        return joined(known, await told)
    except Exception as error:  # noqa: BLE001  as above
        return FailedIdentity(known, error)
