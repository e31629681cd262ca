"""A fleet does what its plan says, logs all of it, and leaves nothing running."""

import multiprocessing
import os
import signal
from collections.abc import Callable

import pytest

from batchlimit import Quota
from benchmarks.audited_fleet.fleet import Fleet, FleetError, FleetLog, Row
from benchmarks.audited_fleet.plan import Api, Plan, steady
from benchmarks.audited_fleet.report import report
from benchmarks.audited_fleet.trial import trial
from tests.depth import depth

both_apis = pytest.mark.parametrize("api", Api)
one_api = pytest.mark.parametrize("api", depth([Api.ASYNC], list(Api)))
"""For what both do by the same lines."""


def plan_of(url: str, *, processes: int = 2, seconds: float = 1.0, cost: int = 1, api: Api = Api.THREADS) -> Plan:
    quota = "500/s burst 100"
    phases = steady(Quota.parse(quota), 2.0, seconds, cost)
    return Plan(url, quota, "tested", processes, 2, phases, (cost,), api=api)


def ignore(elapsed: float, rows: list[Row]) -> None:
    pass


def run(plan: Plan, watch: Callable[[float, list[Row]], None] = ignore) -> FleetLog:
    with Fleet(plan) as fleet:
        return fleet.run(watch)


@pytest.fixture(scope="module", params=depth([Api.THREADS], list(Api)))
def unshared(request: pytest.FixtureRequest) -> tuple[Plan, FleetLog]:
    """A fleet that has run, with a bucket in each process."""
    plan = plan_of("memory://", api=request.param)
    return plan, run(plan)


@one_api
def test_processes_that_share_a_store_keep_the_promise_together(api: Api) -> None:
    shown = trial(plan_of("embedded://", api=api), ignore)
    assert shown.excess == 0
    assert shown.promise_kept
    assert sum(shown.admitted_by_process) == shown.admitted > 0


def test_processes_with_a_store_each_break_it(unshared: tuple[Plan, FleetLog]) -> None:
    """The proof that the audit can fail: memory:// is one bucket a process."""
    shown = report(*unshared, None, "")
    assert shown.excess > 0
    assert not shown.promise_kept


@both_apis
def test_a_process_that_is_stopped_past_its_lease_spends_nothing_of_it(api: Api) -> None:
    plan = plan_of("embedded://", api=api)
    orders = iter([signal.SIGSTOP, signal.SIGCONT])  # some 0.2 s apart; a lease of this quota lasts 0.08 s

    def stop_and_go(elapsed: float, rows: list[Row]) -> None:
        if order := next(orders, None):
            pid = multiprocessing.active_children()[0].pid
            assert pid is not None
            os.kill(pid, order)

    assert trial(plan, stop_and_go).excess == 0


@one_api
def test_a_process_that_cannot_go_on_ends_the_run(api: Api) -> None:
    with pytest.raises(FleetError, match="process 0 gave up: ValueError"):
        run(plan_of("nonsense://", processes=1, api=api))
    assert not multiprocessing.active_children()


@one_api
def test_no_process_outlives_an_interrupted_run(api: Api) -> None:
    def interrupt(elapsed: float, rows: list[Row]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan_of("memory://", api=api), interrupt)
    assert not multiprocessing.active_children()


def test_a_killed_process_is_missed() -> None:
    def kill(elapsed: float, rows: list[Row]) -> None:
        multiprocessing.active_children()[0].kill()

    with pytest.raises(FleetError, match="vanished"):
        run(plan_of("memory://", seconds=60.0), kill)
    assert not multiprocessing.active_children()
