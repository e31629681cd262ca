"""Scenarios in virtual time, ours and its rivals by name; a run of its own can be a process of its own."""

from benchmarks.audited_fleet.report import Report
from benchmarks.rivals import MACHINES
from benchmarks.rivals.virtual import virtual
from benchmarks.scenarios import Scenario
from tests.simulation.fleet import Maker, ours, simulate

OURS = "ours"
LIMITERS: dict[str, Maker] = {OURS: ours, **{name: virtual(machine) for name, machine in MACHINES.items()}}
"""All limiters that can be simulated, by name."""


def simulated(scenario: Scenario, who: str, seconds: float, round_trip: float = 0.001) -> Report:
    """Run the scenario for so many virtual seconds, with a store so many seconds away."""
    return simulate(scenario.plan("simulated", seconds), LIMITERS[who], round_trip)
