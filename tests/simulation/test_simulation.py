"""Hundreds of short scenarios, and the proof that each rule's breaking would be noticed.

More of them: python -m tests.simulation --seeds 100000 --jobs 2
"""

from dataclasses import replace

import pytest

from batchlimit import Quota
from batchlimit.reservoir import requests
from benchmarks.audited_fleet.plan import Plan, steady
from tests.depth import DEEP, depth
from tests.simulation.breaks import BREAKS
from tests.simulation.fleet import ours, simulate
from tests.simulation.run import Run
from tests.simulation.scenario import draw
from tests.simulation.shrink import failure, shortest, trace
from tests.simulation.watch import Violation

_CHUNK = 25
_IN_SHADOW = range(75, 76)
"""The first seed in which an operator has a key in shadow mode admit beyond its limit."""


@pytest.mark.parametrize(
    "seeds", [range(first, first + _CHUNK) for first in range(0, depth(50, 2000), _CHUNK)] + [_IN_SHADOW], ids=str
)
def test_no_rule_is_broken(seeds: range) -> None:
    for seed in seeds:
        try:
            Run(draw(seed)).play()
        except Exception as error:
            raise AssertionError(f"seed {seed}: python -m tests.simulation --first {seed} --seeds 1") from error


@pytest.mark.parametrize("seeds", [range(first, first + _CHUNK) for first in range(0, depth(25, 500), _CHUNK)], ids=str)
def test_no_rule_is_broken_where_small_bursts_are_prefetched(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at many: the bursts here are smaller than what is worth a look."""
    monkeypatch.setattr(requests, "_MANY", 2)
    monkeypatch.setattr(requests, "_LONG", 0.0)
    test_no_rule_is_broken(seeds)


def test_a_seed_replays_exactly() -> None:
    stories = []
    for _ in range(2):
        run = Run(draw(9), trace=True)
        run.play()
        stories.append((run.steps, run.watch.trace))
    assert stories[0] == stories[1]
    assert stories[0][0] > 100


# Where to look first for what few seeds notice, or what takes long to tell shortly.
_HINTS = {"copies": 1256, "expiry": 689, "sharing": 82, "overrides": 583, "ends": 99, "shares": 279}
_HINTS |= {"freedom": 227, "shadow": 27, "fill": 11, "revisions": 19, "sent": 24, "begins": 25}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_rule_is_noticed_and_its_story_is_short(broken: str) -> None:
    hint = _HINTS.get(broken, 0)
    with BREAKS[broken]():
        seed = next((seed for seed in range(hint, hint + 2000) if failure(draw(seed)) is not None), None)
        assert seed is not None
        assert isinstance(failure(draw(seed)), Violation)  # and no crash, which tells nothing of the rule
        if not DEEP and broken != next(iter(BREAKS)):
            return  # to shorten a story takes much longer than to find one
        whole = draw(seed)
        short = shortest(whole)
        assert len(short.events) <= min(10, len(whole.events))
        assert "Violation" in trace(short)[-1]


# A plan in virtual time: what is refilled is used and shared, and the report is that of a fleet


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
