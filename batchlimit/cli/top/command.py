"""`batchlimit top`: a live screen, or one sample where nobody watches."""

import sys
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from batchlimit.cli.output import DEFAULT_PREFIX, Form, Output, Prefix, Url, opened, say, show
from batchlimit.cli.top.board import Board, Row
from batchlimit.cli.top.pages import Pages, show_limiters
from batchlimit.cli.top.sampler import BUDGET, Cost, Sampler
from batchlimit.cli.top.screen import FRAME, ScreenScene, Sort, View, drawn, keyboard

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
    view = View(sort=sort, pattern=pattern)
    with opened(url, prefix) as admin:
        watch = _Watch(Sampler(admin.store, prefix, budget), admin.store.address, budget, view)
        if once or output is not Output.TABLE or not (sys.stdin.isatty() and sys.stdout.isatty()):
            watch.print(interval, count, output)
        else:
            watch.run(interval)


class _Watch:
    """What is looked at and shown."""

    def __init__(self, sampler: Sampler, address: str, budget: float, view: View) -> None:
        self._sampler, self._address, self._budget, self._view = sampler, address, budget, view
        self._board = Board()

    def print(self, interval: float, count: int, output: Output) -> None:
        """Print one sample: rates are those between two looks."""
        before = self._look()
        time.sleep(interval)
        cost = self._look()
        rows = [_plain(row) for row in self._view.chosen(self._board.rows())[:count]]
        if output is Output.TABLE:
            show(rows, output, empty="no buckets: nobody asks, or the prefix is another one")
            calls, ms = before.calls + cost.calls, before.ms + cost.ms
            say(
                f"both looks cost {calls:,} commands, {ms:.1f} ms of the server; {cost.part:.0%} of all names were seen"
            )
        else:
            show({"store": self._address, "looked": cost._asdict(), "keys": rows}, output)

    def run(self, interval: float) -> None:
        """Show a screen until somebody leaves."""
        console = Console(highlight=False)
        with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            pressed, cost, until = "", self._look(), time.monotonic() + interval
            while not self._view.is_over:
                scene, room = ScreenScene(self._address, time.time(), self._budget, cost), console.height - FRAME
                live.update(drawn(scene, self._board.rows(), self._view, room, console.width), refresh=True)
                pressed = keys.pressed(until - time.monotonic())
                for key in pressed:  # what is known is drawn anew then
                    self._view.press(key)
                if not pressed:
                    cost, until = self._look(), time.monotonic() + interval

    def _look(self) -> Cost:
        look = self._sampler.look(self._board.hottest(_WATCHED))
        self._board.take(look.samples, look.gone)
        return look.cost


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
