"""A plan in virtual time: what is refilled is used and shared, and the report is that of a fleet."""

from dataclasses import replace

import pytest

from batchlimit import Quota
from benchmarks.audited_fleet.plan import Plan, steady
from tests.depth import DEEP, depth
from tests.simulation.fleet import ours, simulate


def plan_of(quota: str, instances: int, demand: float, seconds: float, **rest: object) -> Plan:
    return replace(
        Plan("simulated", quota, "key", instances, 4, steady(Quota.parse(quota), demand, seconds)),
        **rest,  # type: ignore[arg-type]
    )


def test_the_same_plan_gives_the_same_report() -> None:
    first, second = (simulate(plan_of("1000/s", 4, 2.0, 2.0), ours, 0.001) for _ in range(2))
    assert first.as_json() == second.as_json()


def test_below_the_limit_all_is_admitted_and_hardly_anyone_waits() -> None:
    shown = simulate(plan_of("10_000/s", 20, 0.9, 5.0), ours, 0.001)
    assert shown.admitted == shown.offered
    assert shown.excess == 0
    assert shown.calls_per_decision < 0.01
    assert shown.waits_share < 0.003


@pytest.mark.parametrize("instances", [1, 2, 8] if DEEP else [2])
@pytest.mark.parametrize("quota", ["1000/s", "2000/s burst 400", "200/2s; 150/s"])
def test_above_it_what_flows_in_is_used_and_shared(quota: str, instances: int) -> None:
    shown = simulate(plan_of(quota, instances, 3.0, depth(20.0, 40.0)), ours, 0.001)
    assert shown.excess == 0
    assert shown.used_share >= 0.98
    assert instances == 1 or shown.evenness >= 0.85


def test_an_empty_bucket_is_asked_by_few_of_many_decisions() -> None:
    shown = simulate(plan_of("10_000/s", 20, 6.0, 2.0), ours, 0.001)
    assert shown.calls_per_decision < 0.012


def test_mixed_costs_keep_the_promise() -> None:
    """Costs are mixed in each thread's own order, and all of them are audited."""
    shown = simulate(plan_of("1000/s", 2, 1.5, 5.0, costs=(1, 7, 50)), ours, 0.001)
    assert shown.excess == 0
    assert shown.admitted > 5000
