"""Commands that play seeds until a rule breaks: of fleets that share a quota, or a limit of permits."""

import argparse
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_CHUNK = 50


class Play(Protocol):
    """Plays a seed, perhaps with a broken rule; returns the seed, and how it failed, or nothing."""

    def __call__(self, seed: int, broken: str | None = None) -> tuple[int, str]: ...


def _failures(play: Play, seeds: range, jobs: int, broken: str | None) -> Iterator[tuple[int, str]]:
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("seeds"), TimeElapsedColumn(), TimeRemainingColumn()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool, Progress(*columns) as progress:
        task = progress.add_task("", total=len(seeds))
        for seed, failure in pool.imap_unordered(partial(play, broken=broken), seeds, _CHUNK):
            progress.advance(task)
            if failure:
                yield seed, failure


def command(
    name: str,
    text: str | None,
    play: Play,
    breaks: Iterable[str],
    explain: Callable[[int, str | None], str] | None = None,
    words: list[str] | None = None,
) -> int:
    """Play what was asked for; the exit status. `explain` tells the story of a seed that failed."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=text)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    parser.add_argument("--break", choices=[*breaks, "all"], dest="broken", help="break this rule on purpose, or each")
    chosen = parser.parse_args(words)
    seeds, failed = range(chosen.first, chosen.first + chosen.seeds), False
    for broken in breaks if chosen.broken == "all" else [chosen.broken]:
        found = next(islice(_failures(play, seeds, chosen.jobs, broken), 1), None)
        failed = failed or found is not None
        said = found[1] if found else f"{len(seeds):,} seeds, no rule broken"
        print(f"{broken}: {said}" if broken else said, flush=True)
        if found and explain:
            print(f"\nthe shortest story of it:\n\n{explain(found[0], broken)}")
    return int(failed)
