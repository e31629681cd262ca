"""Fairness is judged between processes that want the same; starvation is the time of a process that asks in vain."""

import math
from array import array

import pytest

from benchmarks.audited_fleet.audit import equals, evenness, jain, starvation
from benchmarks.audited_fleet.caller import CallLog
from benchmarks.audited_fleet.instance import InstanceLog
from benchmarks.audited_fleet.plan import Phase, Plan


def process(*calls: tuple[float, float, bool]) -> InstanceLog:
    """(before, after, admitted) of each call."""
    logs = {True: CallLog(), False: CallLog()}
    for before, after, admitted in calls:
        logs[admitted].add(before, after, 1, 0)
    return InstanceLog(logs[True], logs[False], array("q"), 0.0, 0)


def test_only_processes_of_equal_demand_at_equal_times_are_compared() -> None:
    whole, late = (0.0, 1.0), (0.5, 1.0)
    phases = (Phase(1.0, 10.0),)
    assert equals(Plan("", "1/s", "", 3, 1, phases)) == [[0, 1, 2]]
    assert equals(Plan("", "1/s", "", 4, 1, phases, weights=(1, 2, 1, 3))) == [[0, 2]]
    assert equals(Plan("", "1/s", "", 3, 1, phases, presence=(whole, late, whole))) == [[0, 2]]
    assert equals(Plan("", "1/s", "", 1, 1, phases)) == []


@pytest.mark.parametrize(
    ("shares", "index", "poorest"),
    [([5, 5, 5], 1.0, 1.0), ([3, 0, 0], 1 / 3, 0.0), ([1, 3], 0.8, 1 / 3), ([0, 0], math.nan, math.nan)],
)
def test_the_indices(shares: list[int], index: float, poorest: float) -> None:
    assert jain(shares) == pytest.approx(index, nan_ok=True)
    assert evenness(shares) == pytest.approx(poorest, nan_ok=True)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], 0.0),
        ([(0.0, 0.5, True), (3.0, 4.0, True)], 0.0),
        ([(1.0, 1.25, False)], 0.25),
        ([(1.0, 1.25, False), (2.0, 2.5, False), (3.0, 3.5, True), (9.0, 9.25, False)], 1.5),
        # A process that stopped asking was not starved.
        ([(1.0, 1.25, False), (9.0, 9.5, True)], 0.25),
        # One call's long wait is not the process's.
        ([(1.0, 9.5, False), (2.0, 9.0, True)], 0.5),
        # In order of time, not of the log.
        ([(5.0, 5.5, False), (4.0, 4.5, True), (1.0, 1.5, False)], 0.5),
    ],
)
def test_the_longest_time_in_vain(calls: list[tuple[float, float, bool]], expected: float) -> None:
    assert starvation(process(*calls)) == expected
