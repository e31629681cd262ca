"""Which patterns match a method and a path: a tree of segments, in which each node is visited at most once."""

from collections.abc import Iterable, Mapping

from batchlimit.rules.pattern import Pattern
from batchlimit.rules.reading import is_odd, readings
from batchlimit.rules.request import NOTHING


class _Node:
    """What the patterns say after some segments."""

    __slots__ = ("any", "ends", "literal", "rests")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.any: _Node | None = None
        # Numbers of rules, each with its pattern: those that end here, and those that go on with whatever there is.
        self.ends: list[tuple[int, Pattern]] = []
        self.rests: list[tuple[int, Pattern]] = []

    def after(self, segment: str | None) -> "_Node":
        """Return the node after a segment, a new one if there is none."""
        if segment is not None:
            return self.literal.setdefault(segment, _Node())
        self.any = self.any or _Node()
        return self.any


class Matcher:
    """The patterns of all rules, compiled once. No method changes it."""

    __slots__ = ("_root",)

    def __init__(self, patterns: Iterable[tuple[int, Pattern]]) -> None:
        self._root = _Node()
        for number, pattern in patterns:
            node = self._root
            for segment in pattern.segments:
                node = node.after(segment)
            (node.rests if pattern.rest else node.ends).append((number, pattern))

    def find(self, method: str, path: str) -> dict[int, Mapping[str, str]]:
        """Return the numbers of the rules that match, each with the parameters of its first pattern that does."""
        found: dict[int, Mapping[str, str]] = {}
        for reading in readings(path) if is_odd(path) else (path,):
            self._read(method.upper(), reading.strip("/"), found)
        return found

    def _read(self, method: str, path: str, found: dict[int, Mapping[str, str]]) -> None:
        for number, pattern in self._walk(path.lower().split("/") if path else ()):
            if number not in found and (pattern.methods is None or method in pattern.methods):
                found[number] = _parameters(pattern, path) if pattern.names else NOTHING

    def _walk(self, segments: Iterable[str]) -> list[tuple[int, Pattern]]:
        nodes, found = [self._root], [*self._root.rests]
        for segment in segments:
            nodes = [
                after for node in nodes for after in (node.literal.get(segment), node.any if segment else None) if after
            ]
            if not nodes:
                return found
            for node in nodes:
                found += node.rests
        for node in nodes:
            found += node.ends
        return found


def _parameters(pattern: Pattern, path: str) -> dict[str, str]:
    segments = path.split("/", len(pattern.segments))
    return {name: segments[i] for name, i in pattern.names}
