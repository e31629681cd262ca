"""What a viewer presses, and which rows are shown then, in which order."""

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
        found = sorted(
            (row for row in rows if self.pattern in row.key or fnmatchcase(row.key, self.pattern)),
            key=lambda row: row.key,
        )
        return sorted(found, key=_BY[self.sort])[:: -1 if self.is_reversed else 1]


_MOST = 32


class Keyboard:
    """Reads a terminal that tells of each key at once; `keyboard()` makes it."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def pressed(self, seconds: float) -> str:
        """Return what was pressed within so many seconds, as soon as something is; "" if nothing was."""
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, seconds))
        if not ready:
            return ""
        told = os.read(self._terminal, _MOST).decode(errors="ignore")
        return told or "\x04"  # the terminal has gone


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Have standard input tell of each key, and show none, until the end of the block. Not on Windows."""
    import termios  # no such module on Windows, where the other commands work
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield Keyboard(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
