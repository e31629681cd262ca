"""Explore small worlds to their end: python -m tests.model --jobs 2

It prints a row for each shape: states, steps, the longest history, seconds. `--deep` explores larger shapes too,
some minutes more, and `--all` all of them, which nobody has waited for yet. Where a rule is broken, the shortest
history that breaks it is told, and the exit status is 1. `--break all` breaks each rule of tests/model/broken.py
on purpose, to see that it is found; `--break RULE` breaks one of them.
"""

import argparse
import multiprocessing
import sys
from functools import partial

from tests.model.broken import BREAKS
from tests.model.play import broken, explored
from tests.model.shapes import Size, shapes_of

_ROW = "{:<38} {:>10} {:>10} {:>6} {:>8}"


def _table(names: list[str], size: Size, jobs: int) -> bool:
    print(_ROW.format("shape", "states", "steps", "depth", "seconds"), flush=True)
    is_right = True
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for name, found, told in pool.imap(partial(explored, size=size), names):
            print(_ROW.format(name, f"{found.states:,}", f"{found.steps:,}", found.depth, f"{found.seconds:.1f}"))
            print("\n".join(["", *told, ""]) if told else "", end="", flush=True)
            is_right = is_right and not told
    return is_right


def _breaks(rules: list[str], jobs: int) -> bool:
    missed = []
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for rule, found, told in pool.imap(broken, rules):
            print("\n".join([f"{rule}: {found.states:,} states, {found.seconds:.1f} s", *told, ""]), flush=True)
            missed += [] if told else [rule]
    print(f"{len(rules) - len(missed)} of {len(rules)} broken rules were found; not: {missed}")
    return not missed


def main() -> int:
    """Explore what was asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--deep", action="store_const", const="deep", dest="size", default="usual", help="larger shapes"
    )
    parser.add_argument("--all", action="store_const", const="all", dest="size", help="all shapes")
    parser.add_argument("--shape", action="append", help="this one alone")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    parser.add_argument("--break", choices=[*BREAKS, "all"], dest="broken", metavar="RULE", help="break it on purpose")
    chosen = parser.parse_args()
    if chosen.broken:
        return int(not _breaks(list(BREAKS) if chosen.broken == "all" else [chosen.broken], chosen.jobs))
    size: Size = "all" if chosen.shape else chosen.size
    return int(not _table(chosen.shape or list(shapes_of(size)), size, chosen.jobs))


if __name__ == "__main__":
    sys.exit(main())
