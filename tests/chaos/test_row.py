"""The figures of a row, from calls that are written down here."""

import math
from dataclasses import replace

import pytest

from tests.chaos.calls import Call, Outcome, Source
from tests.chaos.fault import nothing
from tests.chaos.growth import growth
from tests.chaos.report import cells, line
from tests.chaos.row import Row, Times, row
from tests.chaos.scenario import Scenario
from tests.chaos.task import Usage

SCENARIO = Scenario("a test", nothing)
TIMES = Times(began=10.0, over=11.0)
GOOD = Call(12.0, 12.0, 0, 1, Outcome.ADMITTED, Source.STORE, 0)


def drawn(*calls: Call, scenario: Scenario = SCENARIO) -> Row:
    return row(scenario, [*calls, GOOD], TIMES, [])


def call(before: float, after: float, outcome: Outcome = Outcome.ADMITTED, source: Source = Source.LOCAL) -> Call:
    return GOOD._replace(before=before, after=after, outcome=outcome, source=source)


def test_counts_are_of_the_time_of_the_fault() -> None:
    shown = drawn(
        call(9.0, 9.5),
        call(9.9, 10.1),
        call(10.5, 10.6, Outcome.REFUSED),
        call(10.5, 10.8, Outcome.UNAVAILABLE),
        call(10.9, 10.9, source=Source.FALLBACK),
        call(11.1, 11.9),
    )
    assert (shown.admitted, shown.refused, shown.unavailable, shown.fallback) == (2, 1, 1, 1)
    assert shown.longest == pytest.approx(0.8)
    assert shown.p99 == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("calls", "recovery"),
    [
        ([call(11.5, 11.5)], 0.5),
        ([call(11.2, 11.2), call(11.5, 11.5)], 0.2),
        ([call(11.2, 11.2), call(11.3, 11.3, Outcome.UNAVAILABLE), call(11.5, 11.5)], 0.5),
        ([call(11.2, 11.2), call(11.3, 11.3, source=Source.FALLBACK), call(11.5, 11.5)], 0.5),
        ([call(11.2, 11.2, source=Source.UNKNOWN), call(11.5, 11.5)], 0.5),
        ([call(12.2, 12.2, Outcome.UNAVAILABLE)], math.inf),
        ([call(12.8, 12.8, Outcome.UNAVAILABLE)], 1.0),
    ],
)
def test_recovered_is_who_admits_again_for_good(calls: list[Call], recovery: float) -> None:
    assert drawn(*calls).recovery == pytest.approx(recovery)


def test_the_last_instance_to_recover_counts_unless_it_was_killed() -> None:
    late = call(12.9, 12.9)._replace(process=1)
    assert drawn(call(11.1, 11.1), late).recovery == pytest.approx(1.9)
    assert drawn(call(11.1, 11.1), call(10.5, 10.5)._replace(process=1)).recovery == pytest.approx(0.1)


def test_tokens_beyond_the_promise_are_an_excess_and_break_a_row() -> None:
    many = [call(10.0, 10.0)._replace(cost=50)] * 3
    shown = drawn(*many)
    assert shown.excess == pytest.approx(50)
    assert not shown.kept
    assert "BROKEN" in line(1, shown)
    assert replace(shown, scenario=replace(SCENARIO, allowed=50.5)).kept
    assert drawn(*[each._replace(key=key) for key, each in enumerate(many)]).excess == 0


def test_an_instance_that_does_not_recover_and_a_caller_that_broke_break_a_row() -> None:
    assert drawn().kept
    assert not replace(drawn(), recovery=math.inf).kept
    assert not replace(drawn(), errors=("KeyError: 1",)).kept
    assert cells(replace(drawn(), recovery=math.inf))[-1] == "never"


def test_what_grows_late_in_a_run_is_noticed() -> None:
    steady = [Usage(4 + number % 2, 0, 20, 50 << 20) for number in range(64)]
    assert growth(steady) == []
    early = [replace(each, threads=2) if number < 8 else each for number, each in enumerate(steady)]
    assert growth(early) == []
    leaking = [replace(each, descriptors=20 + number) for number, each in enumerate(steady)]
    assert growth(leaking) == ["descriptors: 44 -> 76"]
