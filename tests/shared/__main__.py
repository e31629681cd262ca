"""Play stories of fleets that share a limit until a rule breaks: python -m tests.shared --seeds 20000 --jobs 2

Exit status: 0 no rule was broken, 1 one was. `--break NAME` breaks a rule on purpose, to see that this is noticed;
`--break all` does so with each of them.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Iterator

from tests.shared.breaks import BREAKS, played

_CHUNK = 100


def _first_failure(seeds: range, jobs: int, broken: str | None) -> str:
    chunks = [(seeds[at : at + _CHUNK], broken) for at in range(0, len(seeds), _CHUNK)]
    if jobs == 1:
        return _heard(map(played, chunks), len(chunks))
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return _heard(pool.imap(played, chunks), len(chunks))


def _heard(results: Iterator[str], chunks: int) -> str:
    for number, failure in enumerate(results, 1):
        if failure:
            return failure
        if sys.stderr.isatty():
            print(f"\r{number} of {chunks} hundreds of seeds", end="", file=sys.stderr, flush=True)
    return ""


def main(words: list[str] | None = None) -> int:
    """Play what was asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.shared", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--break", choices=[*BREAKS, "all"], dest="broken", help="break this rule on purpose")
    chosen = parser.parse_args(words)
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    failed = False
    for broken in BREAKS if chosen.broken == "all" else [chosen.broken]:
        failure = _first_failure(seeds, chosen.jobs, broken)
        failed = failed or bool(failure)
        print(f"{f'{broken}: ' if broken else ''}{failure or f'{len(seeds):,} seeds, no rule broken'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
