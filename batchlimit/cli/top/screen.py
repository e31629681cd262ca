"""Live screens; that of `top`: rates, level bars and sparklines, what a viewer presses, which rows are shown then."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeVar

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from batchlimit.base.redaction import escaped
from batchlimit.cli.top.board import Row
from batchlimit.cli.top.sampler import Cost

_ENTER, _ESCAPE, _BACK, _LEAVE = "\r\n", "\x1b", "\x7f\b", "qQ\x03\x04"
_MOST = 32
T = TypeVar("T")


class Sort(StrEnum):
    """By which field rows are sorted."""

    USED = "used"
    REFUSED = "refused"
    SHADOW = "shadow"
    LEVEL = "level"
    HELD = "held"
    INSTANCES = "instances"
    KEY = "key"


@dataclass(slots=True)
class View:
    """What a viewer has chosen."""

    sort: Sort = Sort.USED  # by what rows are sorted; the poorest level comes first, of all else the largest
    is_reversed: bool = False  # whether the order is turned round
    pattern: str = ""  # keys that match it, or contain it, are shown; "" shows all
    is_typing: bool = False  # whether the next keys that are pressed go to the pattern

    def press(self, key: str) -> bool:
        """Do what a key means: s sorts by the next column, r turns round, / filters, Escape ends that. True: leave."""
        if self.is_typing:
            if key == _ESCAPE:
                self.pattern, self.is_typing = "", False
            elif key in _ENTER:
                self.is_typing = False
            elif key in _BACK:
                self.pattern = self.pattern[:-1]
            elif key.isprintable():
                self.pattern += key
        elif key == "s":
            order = list(Sort)
            self.sort = order[(order.index(self.sort) + 1) % len(order)]
        elif key == "r":
            self.is_reversed = not self.is_reversed
        elif key == "/":
            self.pattern, self.is_typing = "", True
        elif key == _ESCAPE:
            self.pattern = ""
        else:
            return key in _LEAVE
        return False

    def chosen(self, rows: Iterable[Row]) -> list[Row]:
        found = [row for row in rows if self.pattern in row.key or fnmatchcase(row.key, self.pattern)]
        found.sort(key=lambda row: row.key)
        if self.sort is not Sort.KEY:
            sign = 1 if self.sort is Sort.LEVEL else -1
            found.sort(key=lambda row: sign * float(getattr(row, self.sort)))
        return found[:: -1 if self.is_reversed else 1]


def live(
    look: Callable[[], T],
    draw: Callable[[T, Console], RenderableType],
    interval: float,
    press: Callable[[str], bool] = _LEAVE.__contains__,
) -> None:
    """Look, draw what was seen, and draw it anew after each key; until `press` returns True of one (default: of q)."""
    console = Console(highlight=False)
    with _keyboard() as terminal, Live(console=console, screen=True, auto_refresh=False) as screen:
        seen, until = look(), time.monotonic() + interval
        while True:
            screen.update(draw(seen, console), refresh=True)
            ready, _, _ = select.select([terminal], [], [], max(0.0, until - time.monotonic()))
            pressed = os.read(terminal, _MOST).decode(errors="ignore") if ready else ""
            if (ready and not pressed) or any(map(press, pressed)):  # the terminal is closed, or somebody leaves
                return
            if not ready:
                seen, until = look(), time.monotonic() + interval


@contextmanager
def _keyboard() -> Iterator[int]:
    """Have standard input tell of each key, and show none, until the end of the block. Not on Windows."""
    import termios  # no such module on Windows, where the other commands work
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield terminal
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


FRAME = 7
"""Lines of the screen that are no rows."""
_BAR, _TREND = 10, 12
_TICKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_KEY, _QUOTA, _GAP = 20, 24, 2
"""Characters of a key that no other column takes, if the screen is no wider; of a quota at most; between columns."""


class _Column(NamedTuple):
    """A column: `sort` is the order that it shows, and those of a small rank stay on a narrow screen."""

    heading: str
    sort: Sort | None
    rank: int
    cell: Callable[[Row], Text]
    justify: Literal["left", "right"] = "right"


class ScreenScene(NamedTuple):
    """What is drawn besides rows."""

    store: str  # the address
    at: float  # when (seconds since 1970)
    budget: float  # milliseconds of each server's time for a look
    cost: Cost  # of the last look


def drawn(scene: ScreenScene, rows: Sequence[Row], view: View, room: int, width: int) -> RenderableType:
    """Return the whole screen of so many columns, with `room` rows at most."""
    shown = view.chosen(rows)
    table = table_of(shown[: max(1, room)], view, width)
    cost, clock = scene.cost, datetime.fromtimestamp(scene.at, UTC).strftime("%H:%M:%S UTC")
    sums = f"{len(rows):,} keys, {number(sum(row.used for row in rows))} used/s, "
    seen = "all buckets seen" if cost.part >= 1.0 else f"round of all buckets: {cost.part:.0%}"
    guessed = " as guessed: the user may not read INFO" if cost.is_guessed else ""
    price = f"the last look cost {cost.calls:,} commands, {cost.ms:.1f} ms of the server (budget {scene.budget:g} ms)"
    heading = Text.assemble(
        ("batchlimit top", "bold"), f"  {scene.store}  {clock}\n",
        sums, (f"{number(sum(row.refused for row in rows))} refused/s", "red"), f", {seen}\n",
        (price, "dim"), (guessed, "yellow"), no_wrap=True, overflow="ellipsis",
    )  # fmt: skip
    more = f"{len(shown) - room:,} more rows  " if len(shown) > room else ""
    keys, chosen = (f"q quit  s sort ({view.sort})  r reverse  / filter", "dim"), ""
    if view.is_typing:
        keys, chosen = (f"filter: {view.pattern}▏", "bold"), "  Enter keeps it, Escape ends it"
    elif view.pattern:
        chosen = f"  filter: {view.pattern} (Escape ends it)"
    return Group(heading, Text(""), table, Text.assemble("\n", more, keys, chosen, no_wrap=True))


def table_of(rows: Sequence[Row], view: View, width: int) -> Table:
    """Return rows with the columns that have room."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column(_title("KEY", Sort.KEY, view), ratio=1, no_wrap=True, overflow="ellipsis")
    longest = max((cell_len(escaped(row.key)) for row in rows), default=0)
    left, fit = width - min(longest, max(_KEY, width // 3)), list[_Column]()
    # The column that rows are sorted by has room first, then the others by importance.
    for column in sorted(_COLUMNS, key=lambda each: (each.sort is not view.sort, each.rank)):
        cells = _title(column.heading, column.sort, view), *map(column.cell, rows)
        taken = _GAP + max(each.cell_len for each in cells)
        if taken <= left:
            fit.append(column)
            left -= taken
    shown = sorted(fit, key=_COLUMNS.index)
    for column in shown:
        heading = _title(column.heading, column.sort, view)
        table.add_column(heading, justify=column.justify, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(Text(escaped(row.key)), *(column.cell(row) for column in shown))
    return table


def style_of(share: float) -> str:
    """Return the colour of a level."""
    return "red" if share < 0.1 else "yellow" if share < 0.4 else "green"


def _cut(quota: str) -> Text:
    text = Text(quota, "dim")
    text.truncate(_QUOTA, overflow="ellipsis")
    return text


def _rate(rate: float, style: str, row: Row) -> Text:
    return Text(("~" if row.is_average else "") + number(rate), style) if rate else Text("-", "dim")


def _title(heading: str, sort: Sort | None, view: View) -> Text:
    arrow = ("▲" if view.is_reversed else "▼") if sort is view.sort else ""
    return Text(heading + arrow, "bold")


def bar(share: float, width: int = _BAR) -> str:
    """Return a bar of so many characters (default 10) for a share, 0 to 1."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width, "·")


def sparkline(rates: Sequence[float]) -> str:
    """Return rates as ticks; the largest of them is as high as there is room."""
    top = max(rates, default=0.0)
    return "".join(_TICKS[round(rate / top * (len(_TICKS) - 1))] if top else _TICKS[0] for rate in rates)


def number(value: float) -> str:
    """Return a rate as people read it."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


_COLUMNS = (
    _Column("QUOTA", None, 4, lambda row: _cut(row.quota), "left"),
    _Column("USED/S", Sort.USED, 1, lambda row: Text(("~" if row.is_average else "") + number(row.used))),
    _Column("TREND", None, 8, lambda row: Text(sparkline(row.trend[-_TREND:]).ljust(_TREND), "cyan"), "left"),
    _Column("REFUSED/S", Sort.REFUSED, 2, lambda row: _rate(row.refused, "red", row)),
    _Column("SHADOW/S", Sort.SHADOW, 7, lambda row: _rate(row.shadow, "yellow", row)),
    _Column(
        "LEVEL",
        Sort.LEVEL,
        3,
        lambda row: Text.assemble((bar(row.level), style_of(row.level)), f" {row.level:4.0%}"),
        "left",
    ),
    _Column("HELD", Sort.HELD, 5, lambda row: Text(f"{row.held:,}")),
    _Column("INSTANCES", Sort.INSTANCES, 6, lambda row: Text(f"{row.instances:,}")),
)
"""What a row says besides its key, from left to right."""
