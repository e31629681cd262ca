"""Runs of laws in fleets, many seeds each."""

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.queueing.fleet.contestants import CONTESTANTS
from benchmarks.queueing.fleet.run import FleetRun
from benchmarks.queueing.fleet.scenario import SCENARIOS, jittered
from benchmarks.queueing.fleet.tally import FleetFigures


class Task(NamedTuple):
    """One run; hidden ones have other numbers."""

    name: str
    law: str
    seed: int
    hidden: bool


def carry_out(task: Task) -> FleetFigures:
    """Run it, in whatever process."""
    scenario = SCENARIOS[task.name]
    if task.hidden:
        scenario = jittered(scenario, task.seed)
    return FleetRun(scenario, CONTESTANTS[task.law], task.seed).figures()


@dataclass(frozen=True, slots=True)
class Runs:
    """All seeds of one law in one scenario; nan where a figure says nothing."""

    all: tuple[FleetFigures, ...]

    def mean(self, name: str) -> float:
        values = [value for each in self.all if not math.isnan(value := getattr(each, name))]
        return sum(values) / len(values) if values else math.nan

    def least(self, name: str) -> float:
        return min((value for each in self.all if not math.isnan(value := getattr(each, name))), default=math.nan)

    def most(self, name: str) -> float:
        return max((value for each in self.all if not math.isnan(value := getattr(each, name))), default=math.nan)


Results = dict[str, dict[str, Runs]]
"""By scenario, then by law."""


def measure(pool: Executor, names: Sequence[str], laws: Sequence[str], seeds: range, hidden: bool) -> Results:
    """Run all of it."""
    tasks = [Task(name, law, seed, hidden) for name in names for law in laws for seed in seeds]
    done = iter(list(pool.map(carry_out, tasks)))
    return {name: {law: Runs(tuple(next(done) for _ in seeds)) for law in laws} for name in names}
