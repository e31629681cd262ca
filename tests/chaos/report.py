"""Rows as text: a line on a screen, a line of the table."""

import math
from collections.abc import Iterable

from benchmarks.markdown import percent, table
from tests.chaos.row import Row

_HEAD = (
    "what happens", "policy", "callers", "p99", "longest wait", "admitted", "refused", "raised", "excess", "allowed",
    "recovery",
)  # fmt: skip

_BRIEF = (0, 1, 2, 4, 5, 8, 10)
_TOLD = {  # those that tell most
    "nothing, closed, threads",
    "nothing passes, closed, threads",
    "nothing passes, local, threads",
    "replies are lost, closed, threads",
    "killed, and empty when back, closed, async",
    "killed, and empty when back, local, threads",
    "killed, and empty when back, open, threads",
    "the same, one process of 8 threads, closed, threads",
    "the server stands still, closed, threads",
    "FLUSHALL, closed, threads",
    "a process is killed and replaced, closed, threads",
    "a node of a cluster is killed, closed, threads",
    "sentinels fail over, closed, threads",
}


def markdown(rows: Iterable[Row]) -> str:
    """The table of docs/failures.md."""
    return table(_HEAD, map(cells, rows))


def summary(rows: Iterable[Row]) -> str:
    """The table of docs/performance: what is not obvious, in few columns."""
    told = [cells(row) for row in rows if str(row.scenario) in _TOLD]
    return table([_HEAD[each] for each in _BRIEF], ([row[each] for each in _BRIEF] for row in told))


def cells(row: Row) -> list[str]:
    """A row of it."""
    return [
        row.scenario.name,
        row.scenario.policy,
        f"{row.scenario.processes} x {row.scenario.callers} {row.scenario.api.callers}",
        _ms(row.p99),
        _ms(row.longest),
        percent(row.share, 0),
        str(row.refused),
        str(row.unavailable),
        f"{row.excess:.0f}",
        "-" if row.scenario.allowed == math.inf else f"{row.scenario.allowed:.0f}",
        _ms(row.recovery),
    ]


def line(number: int, row: Row) -> str:
    """One line of the long run."""
    name, policy, callers, p99, longest, *_, excess, allowed, recovery = cells(row)
    wrong = "" if row.kept else f"  BROKEN {'; '.join(row.errors)}"
    still = f"(machine {_ms(row.stalled)})"
    return (
        f"{number:4} {name:40} {row.scenario.seconds:4.1f} s {policy:6} {callers:13} p99 {p99:>8} longest {longest:>8}"
        f" {still:16} admitted {percent(row.share, 0):>6} excess {excess} of {allowed}, recovery {recovery}{wrong}"
    )


def _ms(seconds: float) -> str:
    return "never" if seconds == math.inf else f"{1000 * seconds:.0f} ms"
