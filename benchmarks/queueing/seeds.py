"""Runs of many seeds, carried out at once: what each law came to in each scenario."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

Figures = TypeVar("Figures")
Row = TypeVar("Row")
Column = TypeVar("Column")
Task = TypeVar("Task")


@dataclass(frozen=True, slots=True)
class Runs(Generic[Figures]):
    """All seeds of one law in one scenario; nan where a figure says nothing."""

    all: tuple[Figures, ...]

    def mean(self, name: str) -> float:
        values = self._values(name)
        return sum(values) / len(values) if values else math.nan

    def least(self, name: str) -> float:
        return min(self._values(name), default=math.nan)

    def most(self, name: str) -> float:
        return max(self._values(name), default=math.nan)

    def worst(self, name: str) -> float:
        """The least goodput, the most of anything else."""
        return self.least(name) if name == "goodput" else self.most(name)

    def _values(self, name: str) -> list[float]:
        values: Iterable[float] = (getattr(each, name) for each in self.all)
        return [value for value in values if not math.isnan(value)]


def carried_out(
    pool: Executor,
    run: Callable[[Task], Figures],
    task: Callable[[Row, Column, int], Task],
    rows: Sequence[Row],
    columns: Sequence[Column],
    seeds: Sequence[int],
    at_once: int = 1,
) -> dict[Row, dict[Column, Runs[Figures]]]:
    """Run the task of each row, column and seed, so many `at_once` in a process of the pool."""
    tasks = [task(row, column, seed) for row in rows for column in columns for seed in seeds]
    done = iter(list(pool.map(run, tasks, chunksize=at_once)))
    return {row: {column: Runs(tuple(islice(done, len(seeds)))) for column in columns} for row in rows}
