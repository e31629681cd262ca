"""Where a limiter should do no harm: starts of healthy services, wide service times, many small limits, simulated.

    python -m benchmarks.harmless [--only PATTERN] [--laws PATTERN] [--seeds 0-4] [--jobs N]

The same every time, on every machine. The default law was tuned on seeds 0 to 4; seeds 5 to 9 were held back.
"""

import argparse
import math
import multiprocessing
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from benchmarks.markdown import percent, table
from benchmarks.queueing.fleet.contestants import CONTESTANTS
from benchmarks.queueing.fleet.harmless import HARMLESS
from benchmarks.queueing.fleet.run import FleetRun
from benchmarks.queueing.fleet.tally import FleetFigures
from benchmarks.queueing.seeds import Runs, carried_out


class Trial(NamedTuple):
    """One run."""

    name: str
    law: str
    seed: int


def carry_out(trial: Trial) -> FleetFigures:
    """Run it, in whatever process."""
    return FleetRun(HARMLESS[trial.name], CONTESTANTS[trial.law], trial.seed).figures()


def main() -> None:
    """Measure, and print."""
    chosen = _arguments()
    names = [name for name in HARMLESS if re.search(chosen.only, name)]
    laws = [law for law in CONTESTANTS if re.search(chosen.laws, law)]
    first, last = map(int, chosen.seeds.split("-"))
    with ProcessPoolExecutor(chosen.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = carried_out(pool, carry_out, Trial, names, laws, range(first, last + 1))
    head = ["", "law", "in time", "worst run", "refused in vain", "p99", "fairness", "refused in the worst 100 ms"]
    print(table(head, (row for name, by_law in results.items() for row in _rows(name, by_law))))


def _rows(name: str, by_law: dict[str, Runs[FleetFigures]]) -> Iterator[list[str]]:
    for law, runs in by_law.items():
        yield [
            name, law, _share(runs.mean("goodput")), _share(runs.least("goodput")),
            percent(runs.mean("false_refusals"), 2), f"{1000 * runs.mean('p99'):,.0f} ms",
            _share(runs.mean("fairness")), percent(runs.mean("worst_moment"), 0),
        ]  # fmt: skip


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="of the scenarios, those whose name matches this pattern")
    parser.add_argument("--laws", default="^Knee$", help="of the laws, those whose name matches this pattern")
    parser.add_argument("--seeds", default="0-4", help="the first and the last")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    return parser.parse_args()


if __name__ == "__main__":
    main()
