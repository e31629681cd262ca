"""The key of a rule: a template such as "login:{ip}", filled with values that strangers choose.

The colons of a template cut it into segments. A segment has at most one field, and a value has no colon after it was
escaped. So a key tells which values it was made of, and nobody makes another key by choosing a value.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

from batchlimit.base.redaction import shown

LONGEST_VALUE = 96
"""Characters of a value in a key, after it was escaped. A longer one becomes its beginning and a hash."""

_ABSENT = object()
_SHOWN = 32
_UNSAFE = re.compile(r"[^\w.@+/=~,-]")
_is_plain = re.compile(rf"[\w.@+/=~,-]{{1,{LONGEST_VALUE}}}").fullmatch
_FIELD = re.compile(r"\{([^{}]*)\}")
_LITERAL = re.compile(r"[\w.@+/=~,-]*").fullmatch


class NoKey(Exception):
    """A value for a key is not there, or cannot be used; the message says which."""


class Segment(NamedTuple):
    """What stands between two colons: a literal, or a field (None: there is none) with literals around it."""

    before: str
    field: str | None
    after: str

    def overlaps(self, other: "Segment") -> bool:
        """Whether some values make both the same; the empty value is counted among them."""
        if self.field is None or other.field is None:
            literal, pattern = (self, other) if self.field is None else (other, self)
            return literal.before == pattern.before if pattern.field is None else pattern.admits(literal.before)
        return _one_is_prefix(self.before, other.before) and _one_is_prefix(self.after[::-1], other.after[::-1])

    def admits(self, text: str) -> bool:
        """Whether some value makes it this text."""
        enough = len(text) >= len(self.before) + len(self.after)
        return enough and text.startswith(self.before) and text.endswith(self.after)


class KeyTemplate:
    """A key with fields to fill."""

    __slots__ = ("_format", "fields", "segments", "text")

    def __init__(self, text: object) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a key is a str such as 'user:{{user}}', not {shown(text)}")
        if not text:
            raise ValueError("a key must not be empty; 'all' is one bucket for all requests")
        self.text = text
        self.segments = tuple(_segments(text))
        self.fields = tuple(segment.field for segment in self.segments if segment.field is not None)
        self._format = ":".join(
            f"{before}{'' if field is None else '%s'}{after}" for before, field, after in self.segments
        )

    @property
    def pattern(self) -> str:
        """The pattern of its keys, as a mapping of quotas has it: "user:*" for "user:{user}"."""
        return _FIELD.sub("*", self.text)

    @property
    def shape(self) -> tuple[object, ...]:
        """What its keys look like, whatever the fields are called: keys of one shape share buckets on purpose."""
        return tuple((before, field is None, after) for before, field, after in self.segments)

    def overlaps(self, other: "KeyTemplate") -> bool:
        """Whether both can make the same key."""
        return len(self.segments) == len(other.segments) and all(
            mine.overlaps(theirs) for mine, theirs in zip(self.segments, other.segments, strict=True)
        )

    def fill(self, identity: Mapping[str, object], parameters: Mapping[str, object]) -> str:
        """Return the key, first by the identity, for clients choose the path; NoKey: a value is missing or wrong."""
        values = []
        for name in self.fields:
            value = identity.get(name, _ABSENT)
            values.append(written(parameters.get(name) if value is _ABSENT else value, name))
        return self._format % tuple(values)


def written(value: object, name: str) -> str:
    """Return a value as it stands in a key: without colons, and of bounded length; NoKey: it is missing or wrong."""
    return value if type(value) is str and _is_plain(value) else _escaped(value, name)


def _escaped(value: object, name: str) -> str:
    if value is None:
        raise NoKey(f"there is no {{{name}}}")
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        raise NoKey(f"{{{name}}} is a {type(value).__name__}, and must be a str, an int or a UUID")
    plain = str.__str__(value) if isinstance(value, str) else str(value)
    if not plain:
        raise NoKey(f"{{{name}}} is empty")
    text = _UNSAFE.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), plain[: LONGEST_VALUE + 1])
    if len(text) <= LONGEST_VALUE:
        return text
    digest = blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{text[:_SHOWN]}#{digest}"


def _segments(text: str) -> Iterator[Segment]:
    for segment in text.split(":"):
        before, *rest = _FIELD.split(segment)
        if len(rest) > 2:
            raise ValueError(f"key {shown(text)} needs a colon between {{{rest[0]}}} and {{{rest[2]}}}")
        field, after = rest or (None, "")
        if field is not None and not field.isidentifier():
            raise ValueError(f"key {shown(text)}: a field is a name such as {{user}}, not {shown('{' + field + '}')}")
        if not _LITERAL(before) or not _LITERAL(after):
            raise ValueError(f"key {shown(text)} may have letters, digits, fields such as {{user}} and :._@+/=~,- only")
        if field is None and not before:
            raise ValueError(f"key {shown(text)} has an empty part beside a colon")
        yield Segment(before, field, after)


def _one_is_prefix(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
