"""Many simulated limiters share one simulated server; what they reach is measured against the best limiter there is."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from batchlimit.concurrency.laws import Fixed, Knee
from batchlimit.concurrency.queue import NO_QUEUE
from benchmarks import harmless
from benchmarks.queueing.fleet.best import served
from benchmarks.queueing.fleet.callers import callers
from benchmarks.queueing.fleet.contestants import CONTESTANTS
from benchmarks.queueing.fleet.plain import simulate
from benchmarks.queueing.fleet.pooled import PooledRun
from benchmarks.queueing.fleet.run import FleetRun
from benchmarks.queueing.fleet.scenario import SCENARIOS, FleetScenario, Member
from benchmarks.queueing.fleet.tally import FleetFigures
from tests.depth import depth, only_deep

LONG = depth(40.0, 120.0)
"""Seconds of a run whose figures are means."""


def of(name: str, seconds: float = 60.0) -> FleetScenario:
    return replace(SCENARIOS[name], seconds=seconds)


def fixed(scenario: FleetScenario, limit: int, seed: int = 0) -> FleetFigures:
    return FleetRun(scenario, lambda _: Fixed(limit), seed).figures()


@pytest.mark.parametrize(
    ("name", "seconds"), depth([("4 at 2x", 10.0)], [("4 at 2x", 65.0), ("one joins each minute, 2x", 65.0)])
)
def test_the_same_seed_is_the_same_run(name: str, seconds: float) -> None:
    scenario = of(name, seconds)
    once, again, other = (FleetRun(scenario, CONTESTANTS["Knee"], seed).figures() for seed in (3, 3, 4))
    assert once == pytest.approx(again, nan_ok=True)
    assert once != other


def test_the_best_limiter_serves_all_below_capacity_and_as_many_as_fit_above() -> None:
    for name, least, most in (("1 at 0.7x", 0.999, 1.0), ("1 at 2x", 0.48, 0.52), ("1 at 3x", 0.32, 0.35)):
        scenario = of(name, depth(100.0, 300.0))
        told = list(served(scenario, (call for call, _ in callers(scenario, 0))))
        assert least <= sum(told) / len(told) <= most


def test_limits_that_fit_the_server_come_close_to_the_best_limiter() -> None:
    assert fixed(of("4 at 2x", LONG), 5).goodput > 0.97


def test_without_a_limit_answers_come_too_late() -> None:
    assert fixed(replace(of("4 at 2x"), queue=NO_QUEUE), 10**6).goodput < 0.05


def test_a_refusal_counts_unless_the_best_limiter_refuses_too() -> None:
    """Above capacity as well: a burst that a queue would hold is no excuse."""
    bursts = replace(SCENARIOS["alone: 3x for 200 ms a second, no queue"], seconds=depth(25.0, 60.0))
    assert fixed(bursts, 20).false_refusals > 0.3
    assert fixed(bursts, 10**6).false_refusals < 0.01
    assert fixed(of("4 at 2x", LONG), 5).false_refusals < 0.02


def test_members_are_there_from_when_they_join_until_they_leave() -> None:
    scenario = replace(of("4 at 2x"), members=(Member(), Member(joins=20.0), Member(leaves=40.0)))
    seen: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for call, place in callers(scenario, 0):
        seen[place].append(call.came / 1e9)
    assert 20.0 < min(seen[1]) < 20.5
    assert 39.5 < max(seen[2]) < 40.0
    assert max(seen[0]) > 59.0


@only_deep
@pytest.mark.parametrize(("limit", "least", "most"), [(3, 0.9, 1.03), (60, 0.0, 0.3)])
def test_the_plain_simulation_agrees(limit: int, least: float, most: float) -> None:
    """It shares no line with the other one but the limiter itself."""
    plain = simulate(lambda: Fixed(limit), 4, 2.0, 40.0)[-1]
    scenario = replace(of("4 at 2x", 40.0), measured=20.0)
    for seen in (plain, fixed(scenario, limit).goodput):
        assert least <= seen <= most


def test_of_one_limit_for_all_a_limiter_uses_what_others_leave() -> None:
    """Eight of fifteen callers come to one of four limiters. Each finds 7: that one needs more, and the others less."""
    scenario = of("loads 8:4:2:1, .7x")
    apart, one = (kind(scenario, lambda _: Fixed(7), 0).figures() for kind in (FleetRun, PooledRun))
    assert one.false_refusals < 0.01 < apart.false_refusals


def test_where_a_limiter_should_do_no_harm_each_scenario_has_a_row_for_each_law(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harmless, "HARMLESS", {name: of(name, 25.0) for name in ("1 at 0.7x", "4 at 0.7x")})
    monkeypatch.setattr(harmless, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr("sys.argv", ["harmless", "--only", "^1", "--laws", "^(Knee|Vegas)$", "--seeds", "5-6"])
    harmless.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 1 at")]
    assert [row.split("|")[2].strip() for row in rows] == ["Vegas", "Knee"]


@only_deep
def test_a_fleet_that_starts_in_an_overload_within_two_seconds_settles_within_20() -> None:
    """A late limiter mistakes time in the queue of the others for the time of a call, until all drain together."""
    first, second = simulate(Knee, 8, 3.0, 40.0, seed=1, apart=2.0)
    assert first >= 0.85
    assert second >= 0.95
