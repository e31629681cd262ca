"""Which rows are shown, in which order, and what a key that somebody presses changes. It reads no keyboard."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from batchlimit.cli.top.board import Row


class Sort(StrEnum):
    """By what rows are sorted."""

    USED = "used"
    REFUSED = "refused"
    SHADOW = "shadow"
    LEVEL = "level"
    HELD = "held"
    INSTANCES = "instances"
    KEY = "key"


_BY: dict[Sort, Callable[[Row], Any]] = {
    Sort.USED: lambda row: -row.used,
    Sort.REFUSED: lambda row: -row.refused,
    Sort.SHADOW: lambda row: -row.shadow,
    Sort.LEVEL: lambda row: row.level,
    Sort.HELD: lambda row: -row.held,
    Sort.INSTANCES: lambda row: -row.instances,
    Sort.KEY: lambda row: 0,
}
_ENTER, _ESCAPE, _BACK = "\r\n", "\x1b", "\x7f\b"


@dataclass(slots=True)
class View:
    """What a viewer has chosen.

    Attributes:
        sort: by what rows are sorted; the poorest level comes first, of all else the largest.
        is_reversed: whether the order is turned round.
        pattern: keys that match it, or contain it, are shown; "" shows all.
        is_typing: whether the next keys that are pressed go to the pattern.
        is_over: whether the viewer wants to leave.
    """

    sort: Sort = Sort.USED
    is_reversed: bool = False
    pattern: str = ""
    is_typing: bool = False
    is_over: bool = False

    def press(self, key: str) -> None:
        """Do what a key means: q leaves, s sorts by the next column, r turns round, / filters, Escape ends that."""
        if self.is_typing:
            self._type(key)
        elif key in ("q", "Q", "\x03", "\x04"):
            self.is_over = True
        elif key == "s":
            order = list(Sort)
            self.sort = order[(order.index(self.sort) + 1) % len(order)]
        elif key == "r":
            self.is_reversed = not self.is_reversed
        elif key == "/":
            self.pattern, self.is_typing = "", True
        elif key == _ESCAPE:
            self.pattern = ""

    def _type(self, key: str) -> None:
        if key == _ESCAPE:
            self.pattern, self.is_typing = "", False
        elif key in _ENTER:
            self.is_typing = False
        elif key in _BACK:
            self.pattern = self.pattern[:-1]
        elif key.isprintable():
            self.pattern += key

    def chosen(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows that are shown, in order."""
        found = sorted((row for row in rows if self._shows(row.key)), key=lambda row: row.key)
        return sorted(found, key=_BY[self.sort])[:: -1 if self.is_reversed else 1]

    def _shows(self, key: str) -> bool:
        return self.pattern in key or fnmatchcase(key, self.pattern)
