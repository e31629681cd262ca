"""Runs of laws in fleets, many seeds each."""

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from benchmarks.queueing.fleet.contestants import CONTESTANTS
from benchmarks.queueing.fleet.run import FleetRun
from benchmarks.queueing.fleet.scenario import SCENARIOS, jittered
from benchmarks.queueing.fleet.tally import FleetFigures
from benchmarks.queueing.seeds import Runs, carried_out


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


Results = dict[str, dict[str, Runs[FleetFigures]]]
"""By scenario, then by law."""


def measure(pool: Executor, names: Sequence[str], laws: Sequence[str], seeds: range, hidden: bool) -> Results:
    """Run all of it."""
    return carried_out(pool, carry_out, partial(Task, hidden=hidden), names, laws, seeds)
