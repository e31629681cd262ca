"""The simulated server obeys the laws of queues, and the same seed gives the same run."""

import math
from array import array
from dataclasses import replace
from math import nan

import pytest

from batchlimit.concurrency.laws import Fixed
from benchmarks import timetable
from benchmarks.open_loop import Both, observed, open_loop
from benchmarks.queueing.arrivals import arrivals
from benchmarks.queueing.contestants import CONTESTANTS, LAWS
from benchmarks.queueing.laws import OURS
from benchmarks.queueing.report import losses, verdicts
from benchmarks.queueing.results import Results, Task, carry_out
from benchmarks.queueing.run import Run
from benchmarks.queueing.scenario import GOODPUT, SCENARIOS, Kind, Phase, Scenario, Stalls
from benchmarks.queueing.seeds import Runs
from benchmarks.queueing.tally import Figures
from benchmarks.timetable import RATE, Noted
from tests.depth import depth
from tests.recording import Recording

SHORT = replace(SCENARIOS["A"], measured=5.0, seconds=30.0)
NO_LIMIT = 10**9


def loaded(load: float, workers: int = 20, cv: float = 0.5, **more: float) -> Scenario:
    return Scenario("X", "", (Phase(0.0, load, workers),), (Kind(cv=cv),), **{"measured": 5.0, "seconds": 60.0, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("who", ["no limit", "Vegas", "Knee"])
def test_the_same_seed_is_the_same_run(who: str) -> None:
    once, again, other = (Run(SHORT, CONTESTANTS[who](SHORT), seed).figures() for seed in (3, 3, 4))
    assert once == pytest.approx(again, nan_ok=True)
    assert once != other


def test_arrivals_and_service_are_as_the_scenario_says() -> None:
    calls = list(arrivals(loaded(0.7), 1))
    assert len(calls) / 60 == pytest.approx(700, rel=0.02)
    mean = sum(call.work for call in calls) / len(calls)
    sd = math.sqrt(sum((call.work - mean) ** 2 for call in calls) / len(calls))
    assert mean == pytest.approx(20e6, rel=0.02)
    assert sd / mean == pytest.approx(0.5, rel=0.03)


def test_one_worker_waits_as_the_formula_of_pollaczek_and_khinchine_says() -> None:
    """Mean wait of M/G/1: rho (1 + cv^2) / (2 (1 - rho)) service times."""
    law = Recording(NO_LIMIT)
    Run(loaded(0.6, workers=1, seconds=depth(2000.0, 4000.0)), law, 5).figures()
    waits = 0.6 * (1 + 0.25) / (2 * 0.4)
    mean = sum(each.rtt_ns for each in law.samples) / len(law.samples) / 20e6
    assert mean == pytest.approx(1 + waits, rel=0.05)


def test_littles_law_holds() -> None:
    """Calls under way as an arrival finds them, itself included: 1 + rate x time, for arrivals are random."""
    law = Recording(NO_LIMIT)
    Run(loaded(0.7), law, 2).figures()
    samples = law.samples[1000:]
    found = sum(each.in_flight for each in samples) / len(samples)
    rate = len(samples) / ((samples[-1].start_ns - samples[0].start_ns) / 1e9)
    assert found == pytest.approx(1 + rate * sum(each.rtt_ns for each in samples) / len(samples) / 1e9, rel=0.03)


def test_overload_without_a_limit_collapses() -> None:
    figures = Run(loaded(1.5, seconds=depth(20.0, 60.0)), Fixed(NO_LIMIT), 0).figures()
    assert figures.goodput < 0.05
    assert figures.late > 0.95
    assert figures.rejected == 0


@pytest.mark.parametrize("limit", [1, 20, 40])
def test_no_more_calls_are_under_way_than_the_limit(limit: int) -> None:
    law = Recording(limit)
    figures = Run(loaded(1.5, seconds=depth(20.0, 60.0)), law, 0).figures()
    assert max(each.in_flight for each in law.samples) == limit
    assert figures.goodput == pytest.approx(min(1.0, limit / 20), rel=0.08)
    assert figures.goodput * 1000 / 1500 + figures.rejected == pytest.approx(1.0, abs=0.02)


def test_loss_without_a_line_is_erlangs() -> None:
    """Limit = workers, nobody waits: the share turned away is Erlang B of 14 and 20, whatever the service times."""
    share = 1.0
    for servers in range(1, 21):
        share = 14 * share / (servers + 14 * share)
    figures = Run(loaded(0.7, seconds=depth(60.0, 200.0)), Fixed(20), 0).figures()
    assert figures.false_rejections == figures.rejected == pytest.approx(share, rel=0.1)


def test_workers_come_and_go() -> None:
    scenario = Scenario("X", "", (Phase(0, 2.0, 10), Phase(10, 2.0, 5), Phase(20, 2.0, 20)), measured=0, seconds=30)
    answered = [0, 0, 0]

    def watch(now: int, limit: int, in_flight: int, in_time: bool) -> None:
        answered[now // 10**10] += 1

    Run(scenario, Fixed(40), 0, watch).figures()
    assert answered == pytest.approx([5000, 2500, 10000], rel=0.05)


def test_all_stands_still_while_it_stalls() -> None:
    law = Recording(NO_LIMIT)
    Run(replace(loaded(0.5), stalls=Stalls(1.0, 0.2)), law, 0).figures()
    ends = [(each.start_ns + each.rtt_ns) % 10**9 for each in law.samples if each.start_ns > 10**9]
    assert min(ends) >= 0.2e9
    assert max(each.rtt_ns for each in law.samples) > 0.2e9


def test_refused_callers_try_again_and_are_counted_once() -> None:
    over, under = (loaded(load, seconds=depth(20.0, 60.0)) for load in (1.5, 0.7))
    plain, again = (Run(replace(over, retries=retries), Fixed(30), 0).figures() for retries in (0, 3))
    assert again.rejected == pytest.approx(plain.rejected, abs=0.02)
    light, tries = (Run(replace(under, retries=retries), Fixed(20), 0).figures() for retries in (0, 3))
    assert tries.rejected < light.rejected / 10


@pytest.mark.parametrize("who", CONTESTANTS)
def test_everyone_runs(who: str) -> None:
    figures = carry_out(Task("F", who, 0, hidden=True))
    assert 0.0 <= figures.goodput < 1.3


@pytest.mark.parametrize("letter", depth("ABDH", "ABCDEGH"))
def test_the_knee_reaches_its_target(letter: str) -> None:
    """The first seed of the table in docs/concurrency.md; F tells little with one."""
    assert carry_out(Task(letter, "Knee", 0, hidden=False)).goodput >= GOODPUT


# A table of laws rounds nothing up, and says who does better than ours


def runs(*goodputs: float, false: float = nan) -> Runs[Figures]:
    return Runs(tuple(Figures(each, false, 0.1, 0.0, 0.02, 0.05) for each in goodputs))


def results(ours: Runs[Figures], theirs: Runs[Figures]) -> Results:
    return {letter: {who: ours if who == OURS else theirs for who in CONTESTANTS} for letter in "AB"}


def test_what_falls_short_by_a_hair_falls_short() -> None:
    rows = {row[0]: row[1:] for row in verdicts(results(runs(0.93999, false=0.0), runs(0.94, 0.95, false=0.0)))}
    assert rows[OURS] == ["0.939 in A", "0.00 %", "no"]
    assert rows["AIMD, 5 s"][-1] == "yes"


def test_false_rejections_fail_as_well() -> None:
    assert {row[-1] for row in verdicts(results(runs(1.0, false=0.021), runs(1.0, false=0.021)))} == {"no"}


def test_who_does_better_is_named() -> None:
    rows = list(losses(results(runs(0.9), runs(0.95))))
    assert [row[0][0] for row in rows] == ["A", "B"]
    assert rows[0][-1] in LAWS
    assert list(losses(results(runs(0.95), runs(0.953)))) == []


# What is said of calls on a timetable is of all of them, and of no others


def test_the_longest_calls_are_counted_for_both() -> None:
    ours = Noted(array("q", [60_000, 1_000, 1_000, 50_000]), array("q", [1] * 4))
    floor = Noted(array("q", [100] * 4), array("q", [1] * 4))
    figures = {figure.name: figure for figure in open_loop(Both(ours, floor, 7), "here")}
    assert figures["open loop: longer than 50 us, calls"].value == 25
    assert figures["open loop: longer than 50 us, of the floor"].value == 0
    assert figures["open loop: a call, p99"].verdict == "short"
    assert figures["open loop: a call, p50"].note == "4,000/s of 8 threads, here; 7 store calls for 4 and lead-ins"


def test_both_are_observed_on_the_same_timetable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.open_loop._TURN", 0.05)
    monkeypatch.setattr(timetable, "_LEAD_IN", 0.0)
    both = observed("memory://", 0.1)
    assert len(both.ours.took) == len(both.floor.took) == RATE * 0.1
    assert both.asks > 0
