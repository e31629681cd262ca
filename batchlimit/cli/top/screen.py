"""Draws rows on a terminal: rates, level bars, sparklines, and what it cost the server to look."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from batchlimit.cli.top.board import Row
from batchlimit.cli.top.sampler import Cost
from batchlimit.cli.top.view import Sort, View
from batchlimit.redaction import escaped

FRAME = 7
"""Lines of the screen that are no rows."""
_BAR, _TREND = 10, 12
_TICKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_HEADINGS = {
    Sort.KEY: "KEY",
    Sort.USED: "USED/S",
    Sort.REFUSED: "REFUSED/S",
    Sort.SHADOW: "SHADOW/S",
    Sort.LEVEL: "LEVEL",
    Sort.HELD: "HELD",
    Sort.INSTANCES: "INSTANCES",
}


class Scene(NamedTuple):
    """What is drawn besides rows.

    Attributes:
        store: the address.
        at: when (seconds since 1970).
        budget: milliseconds of each server's time for a look.
        cost: of the last look.
    """

    store: str
    at: float
    budget: float
    cost: Cost


def drawn(scene: Scene, rows: Sequence[Row], view: View, room: int) -> RenderableType:
    """Return the whole screen, with `room` rows at most."""
    shown = view.chosen(rows)
    return Group(_heading(scene, rows), Text(""), _table(shown[: max(1, room)], view), _footing(len(shown), room, view))


def _heading(scene: Scene, rows: Sequence[Row]) -> Text:
    cost, clock = scene.cost, datetime.fromtimestamp(scene.at, UTC).strftime("%H:%M:%S UTC")
    sums = f"{len(rows):,} keys, {number(sum(row.used for row in rows))} used/s, "
    seen = "all buckets seen" if cost.part >= 1.0 else f"round of all buckets: {cost.part:.0%}"
    guessed = " as guessed: the user may not read INFO" if cost.is_guessed else ""
    price = f"the last look cost {cost.calls:,} commands, {cost.ms:.1f} ms of the server (budget {scene.budget:g} ms)"
    return Text.assemble(
        ("batchlimit top", "bold"), f"  {scene.store}  {clock}\n",
        sums, (f"{number(sum(row.refused for row in rows))} refused/s", "red"), f", {seen}\n",
        (price, "dim"), (guessed, "yellow"),
    )  # fmt: skip


def _table(rows: Sequence[Row], view: View) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column(_title(Sort.KEY, view), ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("QUOTA", no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column(_title(Sort.USED, view), justify="right", no_wrap=True)
    table.add_column("TREND", width=_TREND, no_wrap=True)
    table.add_column(_title(Sort.REFUSED, view), justify="right", no_wrap=True)
    table.add_column(_title(Sort.SHADOW, view), justify="right", no_wrap=True)
    table.add_column(_title(Sort.LEVEL, view), width=_BAR + 6, no_wrap=True)
    table.add_column(_title(Sort.HELD, view), justify="right", no_wrap=True)
    table.add_column(_title(Sort.INSTANCES, view), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> tuple[Text, ...]:
    about = "~" if row.is_average else ""
    refused, shadow = (
        Text(about + number(rate) if rate else "-", style if rate else "dim")
        for rate, style in ((row.refused, "red"), (row.shadow, "yellow"))
    )
    return (
        Text(escaped(row.key)),
        Text(row.quota, "dim"),
        Text(about + number(row.used)),
        Text(sparkline(row.trend[-_TREND:]), "cyan"),
        refused,
        shadow,
        _level(row.level),
        Text(f"{row.held:,}"),
        Text(f"{row.instances:,}"),
    )


def _level(level: float) -> Text:
    return Text.assemble((bar(level), style_of(level)), f" {level:4.0%}")


def style_of(share: float) -> str:
    """Return the colour of a level."""
    return "red" if share < 0.1 else "yellow" if share < 0.4 else "green"


def _footing(found: int, room: int, view: View) -> Text:
    more = f"{found - room:,} more rows  " if found > room else ""
    if view.is_typing:
        return Text.assemble("\n", more, ("filter: " + view.pattern + "▏", "bold"), "  Enter keeps it, Escape ends it")
    chosen = f"  filter: {view.pattern} (Escape ends it)" if view.pattern else ""
    keys = f"q quit  s sort ({view.sort})  r reverse  / filter"
    return Text.assemble("\n", more, (keys, "dim"), chosen)


def _title(sort: Sort, view: View) -> Text:
    arrow = ("▲" if view.is_reversed else "▼") if sort is view.sort else ""
    return Text(_HEADINGS[sort] + arrow, "bold")


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
