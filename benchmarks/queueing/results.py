"""Runs of every contestant in every scenario, many seeds each, and what they come to."""

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from benchmarks.queueing.contestants import CONTESTANTS
from benchmarks.queueing.run import Run
from benchmarks.queueing.scenario import SCENARIOS, jittered
from benchmarks.queueing.seeds import Runs, carried_out
from benchmarks.queueing.tally import Figures


class Task(NamedTuple):
    """One run: the letter of its scenario, who sets the limit, and the seed; hidden ones have other numbers too."""

    letter: str
    who: str
    seed: int
    hidden: bool


def carry_out(task: Task) -> Figures:
    """Run it, in whatever process."""
    scenario = SCENARIOS[task.letter]
    if task.hidden:
        scenario = jittered(scenario, task.seed)
    return Run(scenario, CONTESTANTS[task.who](scenario), task.seed).figures()


Results = dict[str, dict[str, Runs[Figures]]]
"""By the letter of the scenario, then by contestant."""


def measure(pool: Executor, letters: Sequence[str], who: Sequence[str], seeds: range, hidden: bool) -> Results:
    """Run all of it."""
    task = partial(Task, hidden=hidden)
    return carried_out(pool, carry_out, task, letters, who, seeds, at_once=4)
