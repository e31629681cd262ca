"""A parser of structured fields (RFC 9651) by its grammar: lists of items with parameters. It knows nothing of ours."""

import base64
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_KEY = re.compile(r"[a-z*][a-z0-9_\-.*]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TOKEN = re.compile(r"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*")
_BINARY = re.compile(r":([A-Za-z0-9+/=]*):")


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
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    @property
    def rest(self) -> str:
        return self.text[self.at :]

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self, letters: str) -> None:
        while self.peek() and self.peek() in letters:
            self.at += 1

    def take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        if (found := pattern.match(self.text, self.at)) is None:
            raise Malformed(f"no {pattern.pattern} at {self.rest!r}")
        self.at = found.end()
        return found


def parse_list(field: bytes) -> list[Item]:
    """Section 4.2.1, without inner lists, which the draft does not use."""
    try:
        text = _Text(field.decode("ascii"))
    except UnicodeDecodeError as error:
        raise Malformed("not ASCII") from error
    text.skip(" ")
    found: list[Item] = []
    while text.peek():
        found.append(_item(text))
        text.skip(" \t")
        if not text.peek():
            return found
        if text.peek() != ",":
            raise Malformed(f"no comma at {text.rest!r}")
        text.at += 1
        text.skip(" \t")
        if not text.peek():
            raise Malformed("a comma at the end")
    return found


def _item(text: _Text) -> Item:
    value, parameters = _bare(text), dict[str, Bare]()
    while text.peek() == ";":
        text.at += 1
        text.skip(" ")
        key = text.take(_KEY).group()
        parameters.pop(key, None)
        parameters[key] = True
        if text.peek() == "=":
            text.at += 1
            parameters[key] = _bare(text)
    return Item(value, parameters)


def _bare(text: _Text) -> Bare:
    letter = text.peek()
    if letter == '"':
        return _string(text)
    if letter == ":":
        return base64.b64decode(text.take(_BINARY).group(1), validate=True)
    if letter == "?":
        return text.take(re.compile(r"\?[01]")).group() == "?1"
    if letter == "-" or letter.isdigit():
        return _number(text)
    return Token(text.take(_TOKEN).group())


def _number(text: _Text) -> int | float:
    written = text.take(_NUMBER).group()
    whole, _, fraction = written.lstrip("-").partition(".")
    if "." in written:
        if len(whole) > 12 or len(fraction) > 3:
            raise Malformed(f"too long: {written}")
        return float(written)
    if len(whole) > 15:
        raise Malformed(f"too long: {written}")
    return int(written)


def _string(text: _Text) -> str:
    text.at += 1
    found = ""
    while letter := text.peek():
        text.at += 1
        if letter == "\\":
            if (letter := text.peek()) not in ('"', "\\"):
                raise Malformed(f"a backslash before {letter!r}")
            text.at += 1
        elif letter == '"':
            return found
        elif not " " <= letter <= "~":
            raise Malformed(f"{letter!r} in a string")
        found += letter
    raise Malformed("a string without an end")


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
