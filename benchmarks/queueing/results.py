"""Runs of every contestant in every scenario, many seeds each, and what they come to."""

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.queueing.contestants import CONTESTANTS
from benchmarks.queueing.run import Run
from benchmarks.queueing.scenario import SCENARIOS, jittered
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


@dataclass(frozen=True, slots=True)
class Runs:
    """All seeds of one contestant in one scenario. The worst: the least goodput, the most of anything else."""

    all: tuple[Figures, ...]

    def mean(self, name: str) -> float:
        values = self._values(name)
        return sum(values) / len(values) if values else math.nan

    def worst(self, name: str) -> float:
        values = self._values(name)
        return (min if name == "goodput" else max)(values, default=math.nan)

    def _values(self, name: str) -> list[float]:
        values: Iterable[float] = (getattr(each, name) for each in self.all)
        return [value for value in values if not math.isnan(value)]


Results = dict[str, dict[str, Runs]]
"""By the letter of the scenario, then by contestant."""


def measure(pool: Executor, letters: Sequence[str], who: Sequence[str], seeds: range, hidden: bool) -> Results:
    """Run all of it."""
    tasks = [Task(letter, each, seed, hidden) for letter in letters for each in who for seed in seeds]
    done = iter(list(pool.map(carry_out, tasks, chunksize=4)))
    return {letter: {each: Runs(tuple(next(done) for _ in seeds)) for each in who} for letter in letters}
