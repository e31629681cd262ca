"""Each benchmark runs on small numbers, and says one finite number for each name."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection

import pytest
import redis

from batchlimit import Quota, Statistics
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks import admission, heartbeat, hits, outgoing_cost, replay_error, scrape, small_bursts, stall
from benchmarks.audited_fleet.fleet import Row
from benchmarks.audited_fleet.trial import trial
from benchmarks.figures import Figure
from benchmarks.fleet_of_limiters import Load, measure, tasks, threads
from benchmarks.limited_servers import WAYS
from benchmarks.poisson import End
from benchmarks.rivals import MACHINES, RIVALS
from benchmarks.scenarios import QUIET_THEN_40X, SCENARIOS, Scenario, steady
from benchmarks.server_contest import KINDS, Fleet, run
from benchmarks.virtual import OURS, simulated
from tests.depth import depth, only_deep
from tests.servers import Server

RUNS: dict[str, Callable[[str], Iterable[Figure]]] = {
    "tokens and a permit at once, threads": lambda _: admission.threads(1, 10),
    "tokens and a permit at once, tasks": lambda _: admission.tasks(1, 10),
    "hits": lambda _: hits.hit("memory://", 1),
    "what a transport adds": lambda _: outgoing_cost.added("memory://", rounds=2),
    "the event loop": lambda url: stall.stall(url, 0.1, 1),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_small_run_says_a_number_for_each_name(name: str, valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_WARM_UP", 0.1)
    figures = list(RUNS[name](valkey.url))
    assert len({each.name for each in figures}) == len(figures) > 2
    assert all(math.isfinite(each.value) for each in figures)


def test_hits_leave_nothing_in_memory() -> None:
    assert [figure.value for figure in hits.blocks("memory://")] == [0, 0]


def test_every_key_of_a_scrape_is_in_use_and_holds_tokens() -> None:
    async def of_tasks() -> Statistics:
        return (await scrape.filled(30)).statistics()

    for seen in (asyncio.run(of_tasks()), scrape.filled_for_threads(30).statistics()):
        assert (seen.keys, seen.held, seen.admitted) == (30, 30 * 20, 30)
        assert seen.policies["user:*"].keys == 30


def test_short_logs_are_replayed_with_no_error_where_nothing_is_short() -> None:
    (rules, *_), (traffic, *_) = replay_error._RULES.values(), replay_error._TRAFFIC
    assert replay_error.errors(rules, traffic, 30)[:2] == (0.0, 0.0)


# What small bursts are held against asks a server as often as it counts a token


@pytest.mark.parametrize("api", small_bursts.APIS)
def test_a_floor_that_asks_sends_one_request_a_token(api: str) -> None:
    with closing(EmbeddedStore()) as store, closing(redis.Redis.from_url(store.url)) as client:
        client.config_resetstat()  # the store was asked whether it is there
        count = small_bursts.floor(api, 100.0, 0.05, store.url.removeprefix("unix://"))
        assert client.info("commandstats")["cmdstat_ping"]["calls"] == count > 0


@pytest.mark.parametrize("api", small_bursts.APIS)
def test_a_floor_that_only_sleeps_sleeps_for_each_token(api: str) -> None:
    assert 0 < small_bursts.floor(api, 100.0, 0.05) <= 6


# The rivals in virtual time: each shows what it is known for


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


# The benchmark of real processes counts what it says it counts


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


# Each scenario is what its name says, whatever the time that it is given; and each rival can be run in one


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
