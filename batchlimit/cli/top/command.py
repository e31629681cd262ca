"""`batchlimit top`: a live screen, or one sample, whose rates are those between two looks, where nobody watches."""

import sys
import time
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from batchlimit.cli.options import DEFAULT_PREFIX, Form, Output, Prefix, Url
from batchlimit.cli.output import opened, say, show
from batchlimit.cli.top.board import Board, Row
from batchlimit.cli.top.pages import Pages, show_limiters
from batchlimit.cli.top.sampler import BUDGET, Cost, Sampler
from batchlimit.cli.top.screen import FRAME, ScreenScene, Sort, View, drawn, live

_WATCHED = 200
"""So many of the hottest keys are read at every look, whatever SCAN finds."""


def top(
    url: Url = "",
    metrics: Pages = None,
    interval: Annotated[float, typer.Option(min=0.1, max=60.0, help="Seconds between two looks.")] = 1.0,
    budget: Annotated[float, typer.Option(min=0.5, max=500.0, help="Milliseconds of a server for each look.")] = BUDGET,
    sort: Annotated[Sort, typer.Option(help="By what rows are sorted.")] = Sort.USED,
    pattern: Annotated[
        str, typer.Option("--filter", help="Show keys that contain this, or match it with * or ?.")
    ] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Rows of one sample at most.")] = 20,
    once: Annotated[bool, typer.Option("--once", help="Print one sample and end; so does a pipe.")] = False,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Show which keys use and refuse the most, or concurrency limiters: live at a terminal, else one sample."""
    if metrics:
        show_limiters(metrics, interval, output, once=once)
        return
    view, board = View(sort=sort, pattern=pattern), Board()
    with opened(url, prefix) as admin:
        sampler, address = Sampler(admin.store, prefix, budget), admin.store.address

        def look() -> Cost:
            found = sampler.look(board.hottest(_WATCHED))
            board.take(found.samples, found.gone)
            return found.cost

        def draw(cost: Cost, console: Console) -> RenderableType:
            scene = ScreenScene(address, time.time(), budget, cost)
            return drawn(scene, board.rows(), view, console.height - FRAME, console.width)

        if not once and output is Output.TABLE and sys.stdin.isatty() and sys.stdout.isatty():
            live(look, draw, interval, view.press)
            return
        before = look()
        time.sleep(interval)
        cost = look()
        rows = [_plain(row) for row in view.chosen(board.rows())[:count]]
    if output is not Output.TABLE:
        show({"store": address, "looked": cost._asdict(), "keys": rows}, output)
        return
    show(rows, output, empty="no buckets: nobody asks, or the prefix is another one")
    calls, ms = before.calls + cost.calls, before.ms + cost.ms
    say(f"both looks cost {calls:,} commands, {ms:.1f} ms of the server; {cost.part:.0%} of all names were seen")


def _plain(row: Row) -> dict[str, Any]:
    return {
        "key": row.key,
        "quota": row.quota,
        "used_per_second": round(row.used, 1),
        "refused_per_second": round(row.refused, 1),
        "shadow_refused_per_second": round(row.shadow, 1),
        "level": round(row.level, 3),
        "held": row.held,
        "instances": row.instances,
    }
