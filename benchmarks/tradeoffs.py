"""Where not all can be had at once: laws, limits and queues, and what each gives up, as plots in docs/performance.

    python -m benchmarks.tradeoffs [--only PATTERN] [--seeds N] [--jobs N] [--write]

The same every time, on every machine; 5 virtual minutes a run of many limiters, 2 of one. `--write` draws the plots.
"""

import argparse
import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.queueing.fleet.choices import PLOTS
from benchmarks.queueing.fleet.tradeoff import draw, measure, value

_DOCS = Path(__file__).resolve().parents[1] / "docs" / "performance"


def main() -> None:
    """Measure, print, and draw."""
    chosen = _arguments()
    with ProcessPoolExecutor(chosen.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for number, plot in enumerate(PLOTS):
            if not re.search(chosen.only, plot.name):
                continue
            panels = measure(pool, number, chosen.seeds)
            rows = (
                [
                    scenario.name,
                    choice.family,
                    choice.label,
                    *(f"{value(axis, runs):.3f}" for axis in (plot.across, plot.up)),
                ]
                for scenario, results in zip(plot.panels, panels, strict=True)
                for choice, runs in zip(plot.choices, results, strict=True)
            )
            print(table([plot.name, "", "", plot.across.title, plot.up.title], rows), flush=True)
            if chosen.write:
                draw(_DOCS / f"{plot.name}.svg", plot, panels)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="of the plots, those whose name matches this pattern")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each choice")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--write", action="store_true", help="draw the plots")
    return parser.parse_args()


if __name__ == "__main__":
    main()
