"""Every fault under a crew, and what a replay of its holds shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.markdown import percent, table
from benchmarks.shared_permits.crew import Run, run
from benchmarks.shared_permits.faults import FAULTS, Fault
from benchmarks.shared_permits.log import SECOND
from benchmarks.shared_permits.replay import full_again, longest_wait, most_at_once, too_many_for, used

LIMIT = 10
_HOLD = 0.02
_LOOK = 0.01
"""Seconds between two looks of a holder whether its permit is lost."""
_REST = 3.0
"""Seconds that callers go on after a fault."""
APIS = {"threads": "ours", "tasks": "ours, tasks"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The figures of one fault.

    Attributes:
        most: How many permits were held at once at most.
        too_many_for: From when to when there were more than N (ns).
        used: The part of all slots that was in use, from half a second after the start to the end.
        unused: For how long no permit at all would have been held to the same loss, from the fault on (s).
        wait: The longest that a caller had asked when it got a permit (ns).
        recovery: How long after the fault's end all permits were held at once (ns); None: they never were.
    """

    fault: Fault
    api: str
    most: int
    too_many_for: int
    used: float
    unused: float
    wait: int
    recovery: int | None

    @property
    def kept(self) -> bool:
        """Whether the promise was kept, or where the store lost its state, the bound."""
        if self.fault.keeps:
            return self.most <= LIMIT
        return self.most <= 2 * LIMIT and self.too_many_for <= self.fault.lease * SECOND

    def row(self) -> list[str]:
        """Its line in the table."""
        above = f"; above for {self.too_many_for / 1e6:.0f} ms" if self.too_many_for else ""
        recovery = "-" if self.recovery is None else f"{self.recovery / 1e6:.0f} ms"
        kept = "" if self.kept else " **BROKEN**"
        return [
            self.fault.name,
            self.api,
            f"{self.most} of {LIMIT}{above}{kept}",
            percent(self.used, 0),
            f"{self.unused:.2f} s",
            f"{self.wait / 1e6:.0f} ms",
            recovery,
        ]


HEAD = ["what happens", "API", "most at once", "used", "unused", "longest wait", "all in use again"]


def find(fault: Fault, api: str, found: Run) -> Finding:
    """Return what a run under a fault shows."""
    holds, (began, ended) = found.holds, found.fault
    after = used(holds, LIMIT, began, found.until)
    return Finding(
        fault,
        api,
        most_at_once(holds),
        too_many_for(holds, LIMIT),
        used(holds, LIMIT, found.began, found.until),
        (1 - after) * (found.until - began) / SECOND,
        longest_wait(holds, began),
        full_again(holds, LIMIT, ended),
    )


def play(fault: Fault, api: str, processes: int = 8, callers: int = 8, **plan: Any) -> Finding:
    """Play a fault with new processes on a new server."""
    seconds = fault.at_most or fault.seconds + 1.0
    options: dict[str, Any] = {"kind": APIS[api], "limit": LIMIT, "lease": fault.lease, "callers": callers}
    options |= {"hold": _HOLD, "look": _LOOK, **plan}
    with fault.place(fault.relayed) as stage:
        found = run(stage.url, processes, seconds + _REST, lambda crew: fault.play(crew, stage), **options)
    return find(fault, api, found)


def audit(names: Sequence[str], apis: Sequence[str], **plan: Any) -> bool:
    """Play faults, print a row for each; return whether every promise was kept."""
    print(table(HEAD, []), end="", flush=True)
    kept = True
    for finding in _all(names, apis, plan):
        print(f"| {' | '.join(finding.row())} |", flush=True)
        kept = kept and finding.kept
    return kept


def _all(names: Sequence[str], apis: Sequence[str], plan: dict[str, Any]) -> Iterator[Finding]:
    for name in names:
        for api in apis:
            yield play(FAULTS[name], api, **plan)
