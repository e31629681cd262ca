"""Each scenario is what its name says, whatever the time that it is given; and each rival can be run in one."""

from dataclasses import replace

import pytest

from batchlimit import Quota
from benchmarks.audited_fleet.fleet import Row
from benchmarks.audited_fleet.trial import trial
from benchmarks.rivals import RIVALS
from benchmarks.scenarios import SCENARIOS, Scenario, steady
from tests.depth import depth
from tests.servers import Server


def ignore(elapsed: float, rows: list[Row]) -> None:
    pass


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=list(SCENARIOS))
@pytest.mark.parametrize("seconds", [0.7, 6.0, 3600.0])
def test_a_plan_wants_what_the_scenario_says(scenario: Scenario, seconds: float) -> None:
    assert sum(each.part for each in scenario.stretches) == pytest.approx(1)
    plan = replace(scenario, presence=()).plan("", seconds)
    wanted = sum(each.part * each.demand for each in scenario.stretches) * scenario.rate * seconds
    assert plan.tokens == pytest.approx(wanted)
    assert plan.seconds == pytest.approx(seconds)
    assert max(scenario.costs) <= Quota.parse(scenario.quota).largest_cost


@pytest.mark.parametrize("name", depth(list(RIVALS)[:1], list(RIVALS)))
def test_a_fleet_can_be_limited_by_any_rival(valkey: Server, name: str) -> None:
    scenario = Scenario("500/s burst 100", 2, steady(2), costs=(1, 3))
    shown = trial(scenario.plan(valkey.url, 1.0, RIVALS[name], threads=2), ignore)
    assert 0 < shown.waits < shown.decisions or (name == "per call" and shown.waits == shown.decisions)
    assert 0 < shown.calls_by_limiters <= shown.calls
    assert shown.admitted > 0
