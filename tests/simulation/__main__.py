"""Play scenarios until a rule breaks: python -m tests.simulation --seeds 100000 --jobs 2

A seed that breaks a rule is played again with fewer events, as few as still break it, and told step by step. Exit
status: 0 no rule was broken, 1 one was. `--break NAME` breaks a rule on purpose, to see that this would be noticed.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.simulation.breaks import BREAKS
from tests.simulation.seed import explain, play

_CHUNK = 50


def _failures(seeds: range, jobs: int, broken: str | None) -> Iterator[tuple[int, str]]:
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("seeds"), TimeElapsedColumn(), TimeRemainingColumn()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool, Progress(*columns) as progress:
        task = progress.add_task("", total=len(seeds))
        for seed, failure in pool.imap_unordered(partial(play, broken=broken), seeds, _CHUNK):
            progress.advance(task)
            if failure:
                yield seed, failure


def main() -> int:
    """Play what was asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    parser.add_argument("--break", choices=BREAKS, dest="broken", help="break this rule on purpose")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    found = next(islice(_failures(seeds, chosen.jobs, chosen.broken), 1), None)
    if found is None:
        print(f"{len(seeds):,} seeds, no rule broken")
        return 0
    print(f"seed {found[0]}: {found[1]}\n\nthe shortest story of it:\n\n{explain(found[0], chosen.broken)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
