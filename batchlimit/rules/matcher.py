r"""Which patterns match a method and a path, as any router may read it: a tree of segments, each visited at most once.

A target comes as a path, or as a whole URL. It may have `//`, `..` or `\`, or be encoded again, or begin with where the
application is mounted. A rule applies if one of these readings matches. A framework, a proxy or the application may
read a target in any of these ways, and a client must not get around a rule by writing it differently. A reading too
many costs a client a token at a path that the application answers with 404.

The time for a path grows with its length, and with the number of patterns that begin as it does: no pattern makes it
slow.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType
from typing import Generic, TypeVar
from urllib.parse import unquote, urlparse, urlsplit

from batchlimit.rules.pattern import Pattern
from batchlimit.rules.request import NOTHING

DECODINGS = 3
"""How often a path is decoded again. Nobody decodes a path four times."""

_dots = re.compile(r"/\.\.?(?:/|$)").search
_slashes = re.compile(r"/{2,}").sub
T = TypeVar("T")
Found = tuple[tuple[T, Mapping[str, str]], ...]
"""Targets, each with the path parameters of its pattern."""


def is_odd(path: str) -> bool:
    """Whether a path has other readings than itself."""
    return (
        path[:1] != "/"
        or "//" in path
        or "%" in path
        or "\\" in path
        or path[-1:] == "\n"
        or ("/." in path and _dots(path) is not None)
    )


def readings(path: str, root: str = "") -> list[str]:
    """Return the readings of a path: itself, and those with and without the `root`, for servers may cut it off."""
    found = _spellings(path)
    if root:
        if not path.startswith(root):
            found |= _spellings(f"{root.rstrip('/')}/{path.lstrip('/')}")
        for below in _below(path, root):
            found |= _spellings(below)
        found |= dict.fromkeys([below for text in found for below in _below(text, root)])
    return list(found)


def _spellings(path: str) -> dict[str, None]:
    """Return the readings of a path that is below nothing, as the keys of a dict: they have an order."""
    found, decoded = {path: None}, [path]
    if is_odd(path):
        while len(decoded) <= DECODINGS and (text := unquote(decoded[-1])) != decoded[-1]:
            decoded.append(text)
        for text in decoded:
            plain = text.replace("\\", "/").removesuffix("\n")  # "$" of a route matches before a newline too
            found |= dict.fromkeys((text, *_located(text)))
            for each in dict.fromkeys((plain, *_located(plain))):
                single = _slashes("/", each)
                found |= dict.fromkeys((single, _resolved(single), _slashes("/", _resolved(each))))
    return found


def _below(text: str, root: str) -> list[str]:
    """Return what follows the root: Litestar looks for it anywhere, others at the start, and not all to a slash."""
    return [text.partition(each)[2] for each in dict.fromkeys((root, root.rstrip("/"))) if each and each in text]


def _located(text: str) -> Iterable[str]:
    """Return the paths within a target that is no path, such as "http://host/path": with and without parameters."""
    if text[:1] == "/" and text[1:2] != "/":
        return ()
    try:
        return urlsplit(text).path, urlparse(text).path
    except ValueError:  # as whoever reads it so
        return ()


def _resolved(path: str) -> str:
    """Return the path without "." and ".." segments."""
    kept: list[str] = []
    for segment in path.lstrip("/").split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept)


Hit = tuple[int, int, T, tuple[tuple[str, int], ...]]
"""A pattern of a target: the places of the target and of the pattern, the target, and the path parameters."""


@dataclass(slots=True, eq=False)
class _PathNode(Generic[T]):
    """What the patterns say after some segments."""

    literal: "dict[str, _PathNode[T]]" = field(default_factory=dict)
    any: "_PathNode[T] | None" = None
    ends: list[Hit[T]] = field(default_factory=list)
    rests: list[Hit[T]] = field(default_factory=list)


class Matcher(Generic[T]):
    """Patterns and what they lead to, compiled once. No method changes it."""

    __slots__ = ("_depth", "_others", "_roots")

    def __init__(self, targets: Iterable[tuple[T, Sequence[Pattern]]]) -> None:
        hits: list[tuple[Hit[T], Pattern]] = [
            ((order, position, target, pattern.names), pattern)
            for order, (target, patterns) in enumerate(targets)
            for position, pattern in enumerate(patterns)
        ]
        self._depth = max((len(pattern.segments) for _, pattern in hits), default=0)
        methods = {method for _, pattern in hits for method in pattern.methods or ()}
        self._roots = {method: _tree(hits, method) for method in methods}
        self._others = _tree(hits, None)

    def find(self, method: str, path: str, root: str = "") -> "Found[T]":
        """Return the targets that match, each with the path parameters of its first pattern that does."""
        found: dict[int, tuple[T, Mapping[str, str]]] = {}
        for each in readings(path, root) if root or is_odd(path) else (path,):
            for order, target, parameters in self.read(method, each):
                found.setdefault(order, (target, parameters))
        return tuple([found[order] for order in sorted(found)])

    def read(self, method: str, path: str) -> Iterator[tuple[int, T, Mapping[str, str]]]:
        """Yield the targets of all patterns that match this reading of a path, each with its place and parameters."""
        root = self._roots.get(method) or self._roots.get(method.upper(), self._others)
        text = path.strip("/")
        segments = text.split("/", self._depth) if text else []  # the rest of a path longer than any pattern is one
        nodes, hits = [root], [*root.rests]
        for segment in segments:
            name = segment.lower()
            ways = [way for node in nodes for way in (node.literal.get(name), segment and node.any) if way]
            for node in (nodes := ways):
                hits += node.rests
        for node in nodes:
            hits += node.ends
        for order, _, target, names in sorted(hits, key=_order):
            yield order, target, MappingProxyType({name: segments[i] for name, i in names}) if names else NOTHING


_order = itemgetter(0, 1)


def _tree(hits: Iterable[tuple[Hit[T], Pattern]], method: str | None) -> _PathNode[T]:
    """Return the tree of the patterns that are for a method; None: one that no pattern names."""
    root: _PathNode[T] = _PathNode()
    for hit, pattern in hits:
        if not pattern.takes(method):
            continue
        node = root
        for segment in pattern.segments:
            if segment is None:
                node.any = node.any or _PathNode()
                node = node.any
            else:
                node = node.literal.setdefault(segment, _PathNode())
        (node.rests if pattern.rest else node.ends).append(hit)
    return root


Asked = tuple[str, str, str]
"""Method, path and root of a request."""
_MOST = 1024
_LONGEST = 160
"""Characters of a request that is remembered."""


class Memory(dict[Asked, T]):
    """Looks up what matches a method, path and root. What is long, or came once, is not kept: it would be garbage."""

    __slots__ = ("_find", "_once")

    def __init__(self, find: Callable[[str, str, str], T]) -> None:
        self._find = find
        self._once: set[int] = set()  # the hashes of requests that came once lately

    def __missing__(self, asked: Asked) -> T:
        """Find it, and remember it if it is short and came before."""
        found, name = self._find(*asked), hash(asked)
        if sum(map(len, asked)) > _LONGEST:
            return found
        came_before = name in self._once
        if len(kept := self if came_before else self._once) >= _MOST:
            kept.clear()
        if came_before:
            self._once.discard(name)
            self[asked] = found
        else:
            self._once.add(name)
        return found
