"""Every demand, ours and its rivals: a table and a plot, and how far the simulation can be trusted.

    scripts/bench [--quick]

Writes overload.md, overload.svg and the table of README.md in docs/performance. What is simulated comes out
the same every time; the real fleets are of this machine. Exit status 1 if ours broke a promise, or the simulation and
the real fleet differ by more than a fifth.
"""

import argparse
import math
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from batchlimit import Quota
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.audited_fleet.fleet import unwatched
from benchmarks.audited_fleet.report import Report
from benchmarks.audited_fleet.trial import trial
from benchmarks.figures import ran_on
from benchmarks.markdown import between_marks, percent, table
from benchmarks.plot import draw
from benchmarks.scenarios import QUIET_THEN_40X, SCENARIOS, Scenario, steady
from benchmarks.virtual import LIMITERS, OURS, simulated
from tests.relay import Relay

_ROOT = Path(__file__).resolve().parents[1]
_QUOTA, _BURST = "10_000/s burst 10_000", 10_000
_INSTANCES = 20
_DEMANDS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 6.0, 12.0, 25.0)
_RELAYED = 0.00115
"""What a round trip through a relay of 1 ms takes in truth: seconds, measured."""


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated run."""

    scenario: Scenario
    who: str
    seconds: float


def _carry_out(run: Run) -> Report:
    return simulated(run.scenario, run.who, run.seconds)


class Bench:
    """Runs whatever is needed, as many at a time as there are processors."""

    def __init__(self, pool: ProcessPoolExecutor, quick: bool) -> None:
        self._pool, self._factor = pool, 0.1 if quick else 1.0
        self.broken = False
        """Whether ours broke a promise in any run."""

    def run(self, scenario: Scenario, seconds: float, names: Sequence[str] = tuple(LIMITERS)) -> dict[str, Report]:
        """The scenario with each of these limiters."""
        runs = [Run(scenario, who, seconds * self._factor) for who in names]
        reports = dict(zip(names, self._pool.map(_carry_out, runs), strict=True))
        self.broken = self.broken or not reports[OURS].promise_kept
        return reports


def contest(bench: Bench) -> Iterator[list[str]]:
    """The design's table: a row each of what is measured, what all get, and what ours is to reach."""

    def fleet(demand: float) -> Scenario:
        return Scenario(_QUOTA, _INSTANCES, steady(demand))

    below, double, six = (bench.run(fleet(demand), 20) for demand in (0.9, 2.0, 6.0))
    leaps = [bench.run(Scenario(_QUOTA, _INSTANCES, QUIET_THEN_40X), seconds) for seconds in (2, 3, 4, 5)]
    leap = {who: max((each[who] for each in leaps), key=lambda report: report.excess) for who in LIMITERS}
    yield _row("calls per decision at 0.9x", below, lambda r: percent(r.calls_per_decision), "<= 0.7 %")
    yield _row("at 2x", double, lambda r: percent(r.calls_per_decision), "<= 2.5 %")
    yield _row("at 6x", six, lambda r: percent(r.calls_per_decision), "<= 0.8 %")
    # The longest quiet spell is not the worst one: it depends on what of a batch is left when it ends.
    yield _row("excess, quiet then 40x, of the burst", leap, lambda r: percent(r.excess / _BURST, 1), "0")
    yield _row("excess at 6x, of the burst", six, lambda r: percent(r.excess / _BURST, 1), "0")
    yield _row("used of the allowance at 2x", double, lambda r: percent(r.used_share), ">= 99.5 %")
    yield _row("Jain (min/max) of equal instances at 6x", six, _fairness, ">= .999 (.95)")
    yield _row("decisions that wait for the store, 0.9x", below, lambda r: percent(r.waits_share), "<= 0.3 %")
    yield _row("at 2x", double, lambda r: percent(r.waits_share), "")


def _row(name: str, reports: dict[str, Report], figure: Callable[[Report], str], target: str) -> list[str]:
    rivals = [figure(report) for who, report in reports.items() if who != OURS]
    return [name, *rivals, f"**{figure(reports[OURS])}**", target]


def _fairness(report: Report) -> str:
    return "-" if math.isnan(report.jain) else f"{report.jain:.4f} ({report.evenness:.2f})"


def scenarios(bench: Bench) -> Iterator[list[str]]:
    """Ours wherever a fleet may get, in the simulation: up to a thousand instances."""
    crowds = {
        f"{instances} instances, {demand:g}x": Scenario(_QUOTA, instances, steady(demand))
        for instances in (20, 200, 1000)
        for demand in (0.5, 0.9, 2.0, 6.0)
    }
    for name, scenario in {
        **crowds,
        "20 instances, 50x": Scenario(_QUOTA, _INSTANCES, steady(50)),
        **SCENARIOS,
    }.items():
        shown = bench.run(scenario, 4 if "50x" in name else 10, [OURS])[OURS]
        law = min(1.0, scenario.instances / (0.5 * min(each.burst for each in Quota.parse(scenario.quota).bandwidths)))
        yield [
            name, scenario.quota, str(scenario.instances), f"{shown.excess:g}", percent(shown.ideal_share),
            percent(shown.calls_per_decision), percent(law), _fairness(shown), percent(shown.waits_share),
            f"{1000 * shown.starved_seconds:.0f} ms",
        ]  # fmt: skip


def agreement(seconds: float) -> Iterator[tuple[list[str], bool]]:
    """Four real processes and a real Valkey 1 ms away beside the simulation: the row, and whether they agree."""
    with closing(EmbeddedStore()) as store, Relay(store.url, 0.001) as relay:
        for demand in (0.5, 0.9, 2.0, 6.0):
            scenario = Scenario("4000/s burst 4000", 4, steady(demand))
            real = trial(scenario.plan(relay.url, seconds), unwatched)
            virtual = simulated(scenario, OURS, seconds, _RELAYED)
            measured = real.calls_by_limiters / real.decisions
            ratio = measured / virtual.calls_per_decision
            row = [
                f"{demand:g}x", f"{real.excess:g}", percent(real.used_share), percent(virtual.used_share),
                percent(measured), percent(virtual.calls_per_decision), f"{ratio:.2f}",
            ]  # fmt: skip
            yield row, real.excess == 0 and abs(ratio - 1) <= 0.2


def curves(bench: Bench) -> dict[str, list[float]]:
    """Calls per decision (%) at each demand, for each limiter."""
    lines: dict[str, list[float]] = {who: [] for who in LIMITERS}
    for demand in _DEMANDS:
        for who, shown in bench.run(Scenario(_QUOTA, _INSTANCES, steady(demand)), 5).items():
            lines[who].append(100 * shown.calls_per_decision)
    return lines


def main() -> int:
    """Measure, and write what docs/performance shows; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, and nothing is written")
    chosen = parser.parse_args()
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        bench = Bench(pool, chosen.quick)
        rivals = [who for who in LIMITERS if who != OURS]
        duel = _show(
            table(["20 instances, 10,000/s burst 10,000, 1 ms", *rivals, "**ours**", "target"], contest(bench))
        )
        heads = [
            "",
            "quota",
            "instances",
            "excess",
            "used of the ideal",
            "calls/decision",
            "price law",
            "Jain (min/max)",
        ]
        wide = _show(table([*heads, "waits", "starved"], scenarios(bench)))
        lines = curves(bench)
    compared = list(agreement(1.0 if chosen.quick else 10.0))
    heads = ["4 instances, 4000/s burst 4000", "excess", "used, real", "simulated", "calls/decision, real", "simulated"]
    agreed = _show(table([*heads, "ratio"], [row for row, _ in compared]))
    if not chosen.quick:
        _write(duel, wide, agreed, lines)
    return int(bench.broken or not all(agrees for _, agrees in compared))


def _show(text: str) -> str:
    print(text, flush=True)
    return text


def _write(duel: str, wide: str, agreed: str, lines: dict[str, list[float]]) -> None:
    docs = _ROOT / "docs" / "performance"
    docs.mkdir(exist_ok=True)
    draw(docs / "overload.svg", _DEMANDS, lines, OURS)
    text = f"""# Overload

Written by `scripts/bench`. All but the last table are simulated: the real rules run in virtual time, over a network
whose round trip is 1 ms. A run takes 20 s from a full bucket, with 4 threads an instance. "Quiet then 40x" is the worst
of 2, 3, 4 and 5 s.

![Calls per decision against demand](overload.svg)

{duel}
## Wherever a fleet may get

Ours, 10 s a run (50x: 4 s). The ideal is an unbatched bucket that saw the same calls. The price law: instances /
(burst / 2). Zipf instances all differ, so there is no fairness to tell. Starved: the longest time
that an instance was only refused.

{wide}
## Is the simulation true?

Four real processes and a real Valkey 1 ms away, and the simulation of the same; calls of the limiters, without those
that only connect. {ran_on()}.

{agreed}"""
    (docs / "overload.md").write_text(text, encoding="utf-8")
    between_marks(docs / "README.md", "overload", duel)


if __name__ == "__main__":
    sys.exit(main())
