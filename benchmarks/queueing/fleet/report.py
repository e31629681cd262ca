"""What fleets came to, as rows of tables, and which targets were missed."""

import math
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.markdown import percent
from benchmarks.queueing.fleet.results import Results
from benchmarks.queueing.fleet.scenario import (
    CREEP,
    FAIRNESS,
    FALSE_REFUSALS,
    GOODPUT,
    SCENARIOS,
    WORST_GOODPUT,
)
from benchmarks.queueing.fleet.tally import FleetFigures
from benchmarks.queueing.seeds import Runs


def by_law(results: Results, laws: Sequence[str]) -> Iterator[list[str]]:
    """A row for each scenario: what each law reached."""
    for name, runs in results.items():
        yield [name, *(_share(runs[law].mean("goodput")) for law in laws)]


def by_scenario(runs: Mapping[str, Runs[FleetFigures]]) -> Iterator[list[str]]:
    """A row for each scenario: all figures of one law."""
    for name, each in runs.items():
        yield [
            name, _share(each.mean("goodput")), _share(each.least("goodput")), _share(each.least("worst_slice")),
            percent(each.mean("false_refusals"), 1), _times(each.mean("creep")), _share(each.mean("fairness")),
        ]  # fmt: skip


def misses(runs: Mapping[str, Runs[FleetFigures]]) -> Iterator[str]:
    """Which targets were missed, where, and by how much."""
    for name, each in runs.items():
        scenario = SCENARIOS[name]
        if (mean := each.mean("goodput")) < GOODPUT or each.least("goodput") < WORST_GOODPUT:
            yield f"{name}: {_share(mean)} in time, worst {_share(each.least('goodput'))}"
        if scenario.is_below and (false := each.mean("false_refusals")) > FALSE_REFUSALS:
            yield f"{name}: {percent(false, 1)} false refusals"
        if len(scenario.members) > 1 and len(scenario.phases) == 1 and each.mean("creep") > CREEP:
            yield f"{name}: creep {_times(each.mean('creep'))}"
        if scenario.is_equal and (fair := each.mean("fairness")) < FAIRNESS:
            yield f"{name}: fairness {_share(fair)}"


def _share(value: float) -> str:
    # Rounded down: .9399 has not reached .94.
    return "-" if math.isnan(value) else f"{math.floor(value * 1000) / 1000:.3f}"


def _times(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"
