"""The benchmark of real processes counts what it says it counts."""

from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

from benchmarks.fleet_of_limiters import Load, measure, servers, tasks, threads
from tests.depth import only_deep


@only_deep
@pytest.mark.parametrize("crew", [tasks, threads, servers])
def test_a_short_run_of_two_processes_answers_callers_of_both(crew: Callable[[Load, Connection], None]) -> None:
    shares, limits, fairness = measure(2, 0.2, 20.0 / 10, crew, fixed=5)
    assert shares == []  # no 20 s have passed
    assert limits == 10
    assert fairness > 0
