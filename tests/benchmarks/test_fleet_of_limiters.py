"""The benchmark of real processes counts what it says it counts."""

import pytest

from benchmarks.fleet_of_limiters import measure


@pytest.mark.parametrize("with_threads", [False, True])
def test_a_short_run_of_two_processes_answers_callers_of_both(with_threads: bool) -> None:
    shares, limits, fairness = measure(2, 0.2, 20.0 / 10, with_threads, fixed=5)
    assert shares == []  # no 20 s have passed
    assert limits == 10
    assert fairness > 0
