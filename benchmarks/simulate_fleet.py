"""Every law in many limiters before one server, simulated: tables and plots of docs/performance/fleets.md.

    python -m benchmarks.simulate_fleet [--only PATTERN] [--laws PATTERN] [--seeds N] [--hidden] [--jobs N] [--write]

The same every time, on every machine. 15 virtual minutes a run, 20 s to 3 min of a processor each. `--write` writes the
page and its plots. Exit status 1 if the default law misses a target.
"""

import argparse
import multiprocessing
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.queueing.fleet.contestants import CONTESTANTS
from benchmarks.queueing.fleet.drawing import draw_shares, draw_sums
from benchmarks.queueing.fleet.report import by_law, by_scenario, misses
from benchmarks.queueing.fleet.results import measure
from benchmarks.queueing.fleet.scenario import HIDDEN_SEEDS, SCENARIOS, SEEDS
from benchmarks.queueing.laws import OURS

_DOCS = Path(__file__).resolve().parents[1] / "docs" / "performance"
_BY_HAND = "## All laws"
"""Where the part of the page begins that is not measured: it stays."""


def main() -> int:
    """Measure, and print; the exit status."""
    chosen = _arguments()
    names = [name for name in SCENARIOS if re.search(chosen.only, name)]
    laws = [law for law in CONTESTANTS if re.search(chosen.laws, law)]
    seeds = (HIDDEN_SEEDS if chosen.hidden else SEEDS)[: chosen.seeds]
    with ProcessPoolExecutor(chosen.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = measure(pool, names, laws, seeds, chosen.hidden)
    ours = {name: runs[OURS] for name, runs in results.items() if OURS in runs}
    missed = list(misses(ours))
    text = "\n".join(
        (
            table(["answers in time over those of the best limiter", *laws], by_law(results, laws)),
            table(
                ["Knee", "in time", "worst run", "worst 20 s", "false refusals", "creep", "fairness"], by_scenario(ours)
            ),
            "\n".join(("These miss their target:\n", *(f"- {each}." for each in missed)))
            if missed
            else "Nothing is missed.",
        )
    )
    print(text)
    if chosen.write:
        _write(text, len(seeds))
    return int(bool(missed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="of the scenarios, those whose name matches this pattern")
    parser.add_argument("--laws", default="", help="of the laws, those whose name matches this pattern")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="the first so many of ten")
    parser.add_argument("--hidden", action="store_true", help="the seeds that no law was tuned on, and other numbers")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--write", action="store_true", help="write the page and its plots")
    return parser.parse_args()


def _write(text: str, seeds: int) -> None:
    draw_sums(_DOCS / "fleet-limits.svg")
    draw_shares(_DOCS / "fleet-shares.svg")
    intro = f"""# Laws of concurrency in a fleet, simulated

Written by `python -m benchmarks.simulate_fleet --write`; seeds of each run: {seeds}. N limiters before one server of 10
workers of 50 ms, unless said: one line, first come first served; Poisson arrivals; service times lognormal, CV 0.5.
Each limiter has a law of its own, and knows nothing of the others. Callers wait up to 500 ms at their limiter, in a
queue of 100. An answer is in time 1 s after the caller came. 15 minutes a run, the first 20 s not counted.

The best limiter is one line before all workers: it admits whoever it can serve within half of the deadline. Each
caller that it answers in time and a law does not counts against the law, above capacity as well. False refusals: the
share of callers refused, less the share that the best limiter refuses. Creep: the sum of limits in the last five
minutes over that in the five before. Fairness: answers of the poorest limiter over those of the richest, at equal
loads.

![The sum of limits over time](fleet-limits.svg)

![What each limiter gets](fleet-shares.svg)

"""
    page = _DOCS / "fleets.md"
    _, mark, by_hand = page.read_text(encoding="utf-8").partition(_BY_HAND)
    page.write_text(f"{intro}{text}\n\n{mark}{by_hand}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
