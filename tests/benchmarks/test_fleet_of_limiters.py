"""The benchmark of real processes counts what it says it counts."""

from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

from benchmarks.fleet_of_limiters import Load, measure, tasks, threads
from benchmarks.limited_servers import WAYS
from benchmarks.poisson import End
from benchmarks.server_contest import KINDS, Fleet, run
from tests.depth import only_deep


@only_deep
@pytest.mark.parametrize("crew", [tasks, threads])
def test_a_short_run_of_two_processes_answers_callers_of_both(crew: Callable[[Load, Connection], None]) -> None:
    shares, limits, fairness = measure(2, 0.2, 20.0 / 10, crew, fixed=5)
    assert shares == []  # no 20 s have passed
    assert limits == 10
    assert fairness > 0


@only_deep
@pytest.mark.parametrize("kind", KINDS)
def test_a_short_run_of_two_servers_answers_the_same_callers_whatever_limits_them(kind: str) -> None:
    fleets = run(kind, 2, 0.2, 2.0).fleets
    assert [fleet.way for fleet in fleets] == list(WAYS)
    assert len({tuple(sorted(fleet.came)) for fleet in fleets}) == 1
    assert all(fleet.ends[End.ANSWERED] for fleet in fleets)


def test_goodput_is_of_what_the_slots_can_serve_after_twenty_seconds() -> None:
    def fleet(came: int, answered: int) -> Fleet:
        early = [1.0] * 500
        return Fleet("", [], [], Counter(), [*early, *[25.0] * came], [*early, *[25.0] * answered])

    assert fleet(came=800, answered=400).goodput(30.0) == 0.5  # 100 a second were served by all that came
    assert fleet(came=3000, answered=500).goodput(30.0) == 0.5
