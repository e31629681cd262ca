"""A parser of structured fields (RFC 9651) by its grammar: lists of items with parameters. It knows nothing of ours."""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_BARE = re.compile(
    r"""
    "(?P<string>(?:[ !#-[\]-~]|\\["\\])*)" | :(?P<binary>[A-Za-z0-9+/=]*): | \?(?P<bool>[01])
    | (?P<float>-?[0-9]{1,12}[.][0-9]{1,3})(?![0-9.]) | (?P<int>-?[0-9]{1,15})(?![0-9.])
    | (?P<token>[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*)
    """,
    re.VERBOSE,
)
_PARAMETER = re.compile(r"; *([a-z*][a-z0-9_\-.*]*)(=?)")
_NEXT = re.compile(r"[ \t]*(?:,[ \t]*(?=.)|$)")
"""A comma and what follows it, or the end."""


class Token(str):
    """A token, which is no string."""

    __slots__ = ()


Bare = str | int | float | bytes | bool | Token


class Item(NamedTuple):
    value: Bare
    parameters: dict[str, Bare]


class Malformed(ValueError):
    """The field is to be ignored as a whole."""


class _Text:
    """A field, of which so much was read."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, len(text) - len(text.lstrip(" "))

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if (found := pattern.match(self.text, self.at)) is not None:
            self.at = found.end()
        return found

    def bare(self) -> Bare:
        if (found := self.take(_BARE)) is None or found.lastgroup is None:
            raise Malformed(f"no item at {self.text[self.at :]!r}")
        return _READ[found.lastgroup](found[found.lastgroup])


_READ: dict[str, Callable[[str], Bare]] = {
    "string": lambda text: re.sub(r"\\(.)", r"\1", text),
    "binary": lambda text: base64.b64decode(text, validate=True),
    "bool": "1".__eq__,
    "float": float,
    "int": int,
    "token": Token,
}


def parse_list(field: bytes) -> list[Item]:
    """Section 4.2.1, without inner lists, which the draft does not use."""
    if not field.isascii():
        raise Malformed("not ASCII")
    text, found = _Text(field.decode()), list[Item]()
    while text.at < len(text.text):
        value, parameters = text.bare(), dict[str, Bare]()
        while (parameter := text.take(_PARAMETER)) is not None:
            parameters.pop(parameter[1], None)
            parameters[parameter[1]] = text.bare() if parameter[2] else True
        found.append(Item(value, parameters))
        if text.take(_NEXT) is None:
            raise Malformed(f"no comma, or one at the end: {text.text[text.at :]!r}")
    return found


class Limit(NamedTuple):
    """One policy as a client reads both fields; a parameter that is missing is None."""

    q: int
    w: int | None
    r: int | None
    t: int | None
    pk: bytes | None


def read_limits(headers: Mapping[Any, Any]) -> dict[str, Limit]:
    """Read RateLimit-Policy and RateLimit by the draft's sections 3 and 4; Malformed: a client must ignore them."""
    fields = {_bytes(name).lower(): _bytes(value) for name, value in headers.items()}
    policies = _named(fields.get(b"ratelimit-policy", b""))
    limits = _named(fields.get(b"ratelimit", b""))
    if not limits.keys() <= policies.keys():
        raise Malformed(f"limits without a policy: {limits.keys() - policies.keys()}")
    found = {}
    for name, policy in policies.items():
        q, w = _count(policy, "q"), _count(policy, "w", 1)
        if q is None:
            raise Malformed(f"{name} without q")
        limit = limits.get(name, {})
        r, t = _count(limit, "r"), _count(limit, "t")
        if name in limits and r is None:
            raise Malformed(f"{name} without r")
        pk = policy.get("pk")
        if not isinstance(pk, bytes | None) or (name in limits and limit.get("pk") != pk):
            raise Malformed(f"the partition keys of {name} differ")
        found[name] = Limit(q, w, r, t, pk)
    return found


def _bytes(text: str | bytes) -> bytes:
    return text.encode("latin-1") if isinstance(text, str) else text


def _named(field: bytes) -> dict[str, dict[str, Bare]]:
    found: dict[str, dict[str, Bare]] = {}
    for value, parameters in parse_list(field):
        if not isinstance(value, str) or isinstance(value, Token):
            raise Malformed(f"{value!r} is no string")
        if value in found:
            raise Malformed(f"{value} is there twice")
        found[value] = parameters
    return found


def _count(parameters: dict[str, Bare], name: str, least: int = 0) -> int | None:
    value = parameters.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Malformed(f"{name}={value!r}")
    return value
