"""A text of rules as data, and where in the text its parts stand."""

from collections.abc import Callable
from typing import Any, NamedTuple

Path = tuple[str | int, ...]


class Position(NamedTuple):
    """Line and column, both from 1; None where nobody knows."""

    line: int | None
    column: int | None


class SyntaxProblem(ValueError):
    """A text is not in its format."""

    def __init__(self, problem: str, place: Position) -> None:
        super().__init__(problem)
        self.place = place


class Document:
    """The data of a text, and the offsets of its parts."""

    __slots__ = ("_offset", "_text", "data")

    def __init__(self, text: str, data: Any, offset: Callable[[Path, bool], int | None]) -> None:
        self._text, self._offset = text, offset
        self.data = data

    def place(self, path: Path, *, of_key: bool = False) -> Position:
        """Return where a part stands, or else what it is part of."""
        while path and (found := self._offset(path, of_key)) is None:
            path, of_key = path[:-1], False
        return place_at(self._text, found if path and found is not None else 0)

    def place_within(self, path: Path, value: str, column: int) -> Position:
        """Return the place of a column, from 1, in a value; of the value itself if it is not written as it is."""
        start = self._offset(path, False)
        for quotes in (0, 1):
            if start is not None and self._text.startswith(value, start + quotes):
                return place_at(self._text, start + quotes + column - 1)
        return self.place(path)


def place_at(text: str, offset: int) -> Position:
    """Return line and column of an offset."""
    return Position(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))
