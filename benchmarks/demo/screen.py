"""The demo's output: a live table while a fleet runs, or a line each second without a terminal; then the results."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmarks.audited_fleet.fleet import Row, Watcher
from benchmarks.audited_fleet.plan import Plan
from benchmarks.audited_fleet.report import Latency, Report

# Lines of the terminal besides the rows of processes: borders, heading, total, progress, and the line above.
_FRAME = 8


@contextmanager
def watching(console: Console, plan: Plan) -> Iterator[Watcher]:
    """Show the counters until the end of the block."""
    if not console.is_terminal:
        yield _lines(console, plan)
        return
    with Live(Text("starting the processes ..."), console=console, auto_refresh=False) as live:
        yield lambda elapsed, rows: live.update(_picture(console, plan, elapsed, rows), refresh=True)


def _lines(console: Console, plan: Plan) -> Watcher:
    shown = 0

    def watch(elapsed: float, rows: list[Row]) -> None:
        nonlocal shown
        if int(elapsed) > shown:
            shown = int(elapsed)
            decisions, admitted, refused, calls, ratio = _cells(_total(rows))
            console.print(
                f"{shown:3d} s  decisions {decisions}  admitted {admitted}  refused {refused}  store calls {calls}"
                f"  calls/decision {ratio}",
                soft_wrap=True,
            )

    return watch


def _picture(console: Console, plan: Plan, elapsed: float, rows: list[Row]) -> Group:
    table = Table("process", expand=False)
    for heading in ("decisions", "admitted", "refused", "store calls", "calls/decision"):
        table.add_column(heading, justify="right", min_width=11)
    shown = rows[: max(1, console.height - _FRAME)]
    for process, row in enumerate(shown):
        table.add_row(str(process), *_cells(row))
    if len(shown) < len(rows):
        table.add_row("...", f"{len(rows) - len(shown)} more")
    table.add_section()
    table.add_row("fleet", *_cells(_total(rows)), style="bold")
    bar = ProgressBar(total=plan.seconds, completed=min(elapsed, plan.seconds), width=60)
    progress = Table.grid(padding=(0, 1))
    progress.add_row(bar, f"{min(elapsed, plan.seconds):.1f} of {plan.seconds:g} s")
    return Group(table, progress)


def _total(rows: list[Row]) -> Row:
    return Row(sum(row.admitted for row in rows), sum(row.refused for row in rows), sum(row.calls for row in rows))


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    decisions = row.admitted + row.refused
    ratio = f"{row.calls / decisions:.2%}" if decisions else "-"
    return f"{decisions:,}", f"{row.admitted:,}", f"{row.refused:,}", f"{row.calls:,}", ratio


def heading(plan: Plan, address: str) -> str:
    """Return a line that describes the run."""
    return (
        f"{plan.quota!r} at {address}: {plan.processes} processes x {plan.threads} {plan.api.callers}, "
        f"{plan.seconds:g} s, {plan.calls:,.0f} calls planned"
    )


def verdict(report: Report) -> Iterator[Text]:
    """Yield the results, one a line."""
    yield _kept(report) if report.promise_kept else _broken(report)
    allowed = f"of what was allowed: {report.admitted:,} tokens in {report.seconds:.2f} s, {report.offered:,} asked for"
    yield _finding("used", _percent(report.used_share), allowed)
    yield _finding("", _percent(report.ideal_share), "of what an unbatched bucket would have admitted")
    if not math.isnan(report.jain):
        poorest = f"Jain's index over the processes; the poorest got {report.evenness:.3f} of what the richest got"
        yield _finding("fairness", f"{report.jain:.4f}", poorest)
    counted = f"of decisions: {report.calls:,} calls for {report.decisions:,} decisions"
    yield _finding("store calls", _percent(report.calls_per_decision), counted + _cpu(report))
    waits = f"of decisions waited for the store, for {_latency(report.miss_latency)} (p50 / p99)"
    yield _finding("waits", _percent(report.waits_share), waits)
    yield _finding("admitted in", _latency(report.admitted_latency), "p50 / p99, from call to return")
    yield _finding("refused in", _latency(report.refused_latency), "p50 / p99")
    if report.offered < 0.99 * report.planned:
        carried = "of the planned demand was made: this machine is too slow for more"
        yield _finding("demand", _percent(report.offered / report.planned), carried, "yellow")
    yield _finding("ran on", report.server, report.machine)


def _kept(report: Report) -> Text:
    words = "the promise was kept: no window admitted more than burst + rate x time"
    return _finding("excess", "0 tokens", words, "bold green")


def _broken(report: Report) -> Text:
    words = "BROKEN: some window of time admitted that much more than burst + rate x time"
    return _finding("excess", f"{report.excess:,.3f} tokens", words, "bold red")


def _finding(name: str, figure: str, words: str, style: str = "bold") -> Text:
    return Text.assemble(f"{name:<12} ", (f"{figure:<19} ", style), words)


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.2%}"


def _cpu(report: Report) -> str:
    cpu = report.cpu_us_per_decision
    return "" if math.isnan(cpu) else f", {cpu:.2f} us of server CPU each"


def _latency(latency: Latency) -> str:
    return " / ".join("-" if math.isnan(us) else _duration(us) for us in (latency.p50_us, latency.p99_us))


def _duration(us: float) -> str:
    return f"{us:.1f} us" if us < 1000 else f"{us / 1000:.1f} ms"
