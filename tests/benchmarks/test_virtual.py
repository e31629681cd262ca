"""The rivals in virtual time: each shows what it is known for."""

import pytest

from benchmarks.rivals import MACHINES
from benchmarks.scenarios import QUIET_THEN_40X, Scenario, steady
from benchmarks.virtual import OURS, simulated
from tests.depth import depth

FLEET = Scenario("2000/s burst 2000", 4, steady(2))


@pytest.mark.parametrize("who", MACHINES)
def test_a_run_replays_exactly(who: str) -> None:
    assert simulated(FLEET, who, 0.5).as_json() == simulated(FLEET, who, 0.5).as_json()


def test_per_call_asks_for_each_decision_and_keeps_the_promise() -> None:
    shown = simulated(FLEET, "per call", 2.0)
    assert shown.excess == 0
    assert shown.calls_by_limiters >= shown.decisions
    assert shown.waits == shown.decisions


@pytest.mark.parametrize(("who", "calls"), [("fixed 10", 0.1), ("fixed 100", 0.01)])
def test_fixed_batches_ask_once_a_batch_until_they_are_denied(who: str, calls: float) -> None:
    below = simulated(Scenario("2000/s burst 2000", 4, steady(0.9)), who, 2.0)
    assert below.calls_per_decision == pytest.approx(calls, rel=0.1)
    assert simulated(FLEET, who, 2.0).calls_per_decision > 0.2


@pytest.mark.parametrize("who", depth(["fixed 100"], ["fixed 100", "x1.5/x0.5", "report every 100 ms"]))
def test_what_has_no_lease_breaks_the_promise_after_a_quiet_spell(who: str) -> None:
    assert simulated(Scenario("2000/s burst 2000", 20, QUIET_THEN_40X), who, 2.0).excess > 50


def test_ours_does_not() -> None:
    shown = simulated(Scenario("2000/s burst 2000", 20, QUIET_THEN_40X), OURS, 2.0)
    assert shown.excess == 0
    assert shown.calls_per_decision < 0.02
