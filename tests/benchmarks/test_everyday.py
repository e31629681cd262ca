"""What small limits admit over several instances, beside one plain bucket; and what their clients are told."""

import pytest

from benchmarks.small_limits.cells import Cell, measured
from benchmarks.small_limits.told import AMISS, simulated


@pytest.mark.parametrize(("rate", "burst"), [("1/s", 1), ("10/s", 2), ("100/s", 2)])
@pytest.mark.parametrize(("instances", "demand"), [(1, 2), (8, 0.9), (8, 10)])
def test_a_small_limit_admits_what_a_plain_bucket_admits(rate: str, burst: int, instances: int, demand: float) -> None:
    for arrivals in ("even", "random"):
        assert list(measured(Cell(rate, burst, arrivals, instances, demand)).faults) == []


@pytest.mark.parametrize(("arrivals", "instances"), [("even", 1), ("random", 1), ("even", 4)])
def test_the_way_to_the_store_is_not_lost_at_a_burst_of_1(arrivals: str, instances: int) -> None:
    """1 ms of every 10: it was 11 % of what a plain bucket admits."""
    assert measured(Cell("100/s", 1, arrivals, instances, 10)).part >= 0.985


@pytest.mark.parametrize("quota", [("100/s", 5, 1), ("100/s", 10, 2), ("10/s", 5, 1)])
def test_below_the_rate_a_small_burst_is_spent_and_not_held(quota: tuple[str, int, int]) -> None:
    rate, burst, instances = quota
    assert measured(Cell(rate, burst, "random", instances, 0.9)).part >= 0.98


@pytest.mark.parametrize("quota", ["5/minute", "10/s burst 2"])
@pytest.mark.parametrize("wanders", [False, True])
def test_a_client_that_comes_when_it_was_told_to_is_admitted(quota: str, wanders: bool) -> None:
    waits = simulated(quota, 8, wanders=wanders)
    assert waits.ratio == pytest.approx(1.0, abs=AMISS)
    assert len(waits.told) == len(waits.real)
