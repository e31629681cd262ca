"""A fleet does what its plan says, logs all of it, and leaves nothing running."""

import multiprocessing
import os
import signal
from collections.abc import Callable

import pytest

from batchlimit import Quota
from batchlimit.cli.fleet import Fleet, FleetError, FleetLog, Row
from batchlimit.cli.plan import Plan, steady
from batchlimit.cli.report import Report, report
from batchlimit.cli.server import client_calls
from batchlimit.cli.trial import trial


def plan_of(url: str, *, hosts: int = 2, seconds: float = 0.5, cost: int = 1) -> Plan:
    quota = "500/s burst 100"
    phases = steady(Quota.parse(quota), 2.0, seconds, cost)
    return Plan(url, quota, "tested", hosts, 2, phases, (cost,))


def ignore(elapsed: float, rows: list[Row]) -> None:
    pass


def run(plan: Plan, watch: Callable[[float, list[Row]], None] = ignore) -> FleetLog:
    with Fleet(plan) as fleet:
        return fleet.run(watch)


def test_every_call_is_logged_within_its_interval() -> None:
    log = run(plan_of("memory://"))
    assert len(log.hosts) == 2
    for host in log.hosts:
        calls = [*host.admitted, *host.refused]
        assert sum(host.offered) == len(calls) > 0
        assert all(log.start <= call.before <= call.after <= host.ended for call in calls)


def test_hosts_that_share_a_store_keep_the_promise_together() -> None:
    shown = trial(plan_of("embedded://"), ignore)
    assert shown.excess == 0
    assert shown.promise_kept
    assert sum(shown.host_admitted) == shown.admitted > 0


def test_hosts_with_a_store_each_break_it() -> None:
    """The proof that the audit can fail: memory:// is one bucket a process."""
    shown = trial(plan_of("memory://"), ignore)
    assert shown.excess > 0
    assert not shown.promise_kept


def test_a_host_that_is_stopped_past_its_lease_spends_nothing_of_it() -> None:
    plan = plan_of("embedded://", seconds=1.0)
    orders = iter([signal.SIGSTOP, signal.SIGCONT])  # some 0.2 s apart; a lease of this quota lasts 0.08 s

    def stop_and_go(elapsed: float, rows: list[Row]) -> None:
        if order := next(orders, None):
            pid = multiprocessing.active_children()[0].pid
            assert pid is not None
            os.kill(pid, order)

    assert trial(plan, stop_and_go).excess == 0


def test_one_host_with_a_store_of_its_own_keeps_it() -> None:
    assert trial(plan_of("memory://", hosts=1, cost=5), ignore).promise_kept


def test_a_host_that_cannot_go_on_ends_the_run() -> None:
    with pytest.raises(FleetError, match="host 0 gave up: ValueError"):
        run(plan_of("nonsense://", hosts=1))
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_hosts_start_is_heard_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Fleet._start

    def start_under_fire(fleet: Fleet, host: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        start(fleet, host)

    monkeypatch.setattr(Fleet, "_start", start_under_fire)
    with pytest.raises(KeyboardInterrupt):
        run(plan_of("memory://"))
    assert multiprocessing.active_children() == []


def test_no_host_outlives_an_interrupted_run() -> None:
    def interrupt(elapsed: float, rows: list[Row]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan_of("memory://"), interrupt)
    assert not multiprocessing.active_children()


def test_a_killed_host_is_missed() -> None:
    def kill(elapsed: float, rows: list[Row]) -> None:
        multiprocessing.active_children()[0].kill()

    with pytest.raises(FleetError, match="vanished"):
        run(plan_of("memory://"), kill)
    assert not multiprocessing.active_children()


def test_a_script_s_own_commands_are_not_calls() -> None:
    counted = {
        "cmdstat_evalsha": {"calls": 10, "usec": 5},
        "cmdstat_script|load": {"calls": 2, "usec": 5},
        "cmdstat_client|setinfo": {"calls": 4, "usec": 5},
        "cmdstat_hmget": {"calls": 1000, "usec": 5},
        "cmdstat_time": {"calls": 1000, "usec": 5},
        "cmdstat_info": {"calls": 7, "usec": 5},
    }
    assert client_calls(counted) == 16


def test_a_report_is_plain_values() -> None:
    plan = plan_of("memory://", hosts=1)
    shown: Report = report(plan, run(plan), None, "memory")
    plain = shown.as_json()
    assert plain["cpu_us_per_decision"] is None
    assert plain["excess"] == 0
    assert plain["admitted_latency"]["p99_us"] > 0
