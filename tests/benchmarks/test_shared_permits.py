"""The audit of shared permits: what a replay finds, small audits of real processes, and those that have to fail."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.shared_permits import worker
from benchmarks.shared_permits.__main__ import main
from benchmarks.shared_permits.audit import APIS, Finding, find, play
from benchmarks.shared_permits.crew import Run, run
from benchmarks.shared_permits.faults import FAULTS, Fault, nothing
from benchmarks.shared_permits.log import SECOND, Hold, Log, read
from benchmarks.shared_permits.replay import (
    full_again,
    handovers,
    longest_gap,
    longest_wait,
    most_at_once,
    tokens_grow,
    too_many_for,
    used,
)
from tests.depth import DEEP, depth, only_deep
from tests.servers import Server


def test_a_replay_counts_those_that_overlap() -> None:
    assert most_at_once([]) == 0
    assert most_at_once([Hold(0, 5), Hold(5, 9)]) == 1
    assert most_at_once([Hold(0, 5), Hold(4, 9), Hold(8, 10)]) == 2
    assert most_at_once([Hold(3, 3), Hold(0, 9)]) == 1


def test_a_replay_tells_for_how_long_there_were_too_many() -> None:
    assert too_many_for([Hold(0, 5), Hold(5, 9)], 1) == 0
    assert too_many_for([Hold(0, 5), Hold(3, 9), Hold(8, 10)], 1) == 6


def test_what_a_killed_process_had_begun_lasts_until_it_was_killed(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.start(1, 10, 7, 3)
    log.start(2, 20, 8)
    log.end(1, 30)
    log.close()
    assert list(read(tmp_path / "log", 99)) == [Hold(10, 30, 7, 3), Hold(20, 99, 8)]


def test_figures_of_a_replay() -> None:
    holds = [Hold(0, 50, 1, 5), Hold(60, 100, 2, 10)]
    assert used(holds, 1, 0, 100) == 0.9
    assert handovers(holds, 1) == [10]
    assert longest_gap(holds, 0) == 60
    assert longest_wait(holds, 1) == 10
    assert longest_wait(holds, 61) == 0
    assert tokens_grow(holds)
    assert not tokens_grow([Hold(0, 1, 2), Hold(2, 3, 2)])


@pytest.mark.parametrize(("after", "recovery"), [(0, 0), (40, 0), (50, 10), (55, 5), (99, 0), (100, None)], ids=str)
def test_recovery_is_over_when_all_are_in_use_at_once(after: int, recovery: int | None) -> None:
    assert full_again([Hold(0, 50), Hold(60, 100)], 1, after) == recovery


def _found(holds: list[Hold], **fault: Any) -> Finding:
    found = Run([holds], 0, 0.0, 0, 4 * SECOND, (SECOND, 2 * SECOND))
    return find(Fault("", nothing, **fault), "threads", found)


def test_a_finding_shows_what_the_fault_cost() -> None:
    found = _found([Hold(0, SECOND) for _ in range(10)] + [Hold(3 * SECOND, 4 * SECOND, 0, SECOND) for _ in range(10)])
    assert (found.kept, found.most, found.used, round(found.unused, 6)) == (True, 10, 0.5, 2.0)
    assert (found.wait, found.recovery) == (SECOND, SECOND)


@pytest.mark.parametrize(
    ("count", "seconds", "keeps", "kept"),
    [(10, 9, True, True), (11, 1, True, False), (20, 1, False, True), (21, 1, False, False), (11, 2, False, False)],
)
def test_a_finding_says_whether_the_promise_was_kept(count: int, seconds: int, keeps: bool, kept: bool) -> None:
    assert _found([Hold(0, seconds * SECOND) for _ in range(count)], keeps=keeps).kept is kept


_CUT = "half of the processes are cut off for 1.5 leases"
_SHORT = [("a process is killed and replaced", "threads"), (_CUT, "tasks")]
_ALL = [(fault, api) for fault in FAULTS for api in APIS]


@pytest.mark.parametrize(("fault", "api"), _ALL if DEEP else _SHORT)
def test_processes_never_hold_more_than_is_promised(fault: str, api: str) -> None:
    assert play(FAULTS[fault], api, processes=2, callers=6).kept


def audited(valkey: Server, *plan: Any, **options: Any) -> Run:
    """Run a crew; anew if the machine stalled for all of its time, so that there is nothing to audit."""
    return next(found for found in iter(lambda: run(valkey.url, *plan, **options), None) if found.holds)


def test_of_one_permit_tokens_grow(valkey: Server) -> None:
    found = audited(valkey, 2, 1.5, limit=1, callers=2, hold=0.01, lease=1.0)
    assert most_at_once(found.holds) == 1
    assert tokens_grow(found.holds)


def test_an_audit_notices_that_there_is_no_limit(valkey: Server) -> None:
    found = audited(valkey, 1, 1.0, None, kind="none", limit=1, callers=8)
    assert most_at_once(found.holds) > 1


@pytest.mark.parametrize("kind", depth(["blpop"], ["zset", "lock", "blpop"]))
def test_others_are_measured_alike(valkey: Server, kind: str) -> None:
    with valkey.client() as client:
        client.flushall()
    found = audited(valkey, 1, 1.0, kind=kind, limit=1, callers=2, hold=0.01)
    assert kind == "zset" or most_at_once(found.holds) == 1  # a sorted set by the callers' clocks lends one twice


class _Permit:
    token, lost = 0, False


@pytest.mark.parametrize("looks", [0, 1])
def test_a_holder_whose_permit_is_lost_while_it_stands_still_ends_when_it_last_held_it(
    looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [5 * SECOND]
    monkeypatch.setattr(worker, "_now", lambda: now[0])
    permit, diary = _Permit(), worker.Diary(worker.Plan("", str(tmp_path / "log")))
    entry = diary.begin(4 * SECOND, permit)
    for _ in range(looks):
        now[0] += SECOND // 100
        assert entry.goes_on()
    seen = now[0]
    now[0] += SECOND
    permit.lost = True
    assert not entry.goes_on()
    entry.end()
    diary.close()
    assert list(read(tmp_path / "log", 0)) == [Hold(5 * SECOND, seen, 0, SECOND)]


def test_a_holder_that_works_on_after_it_lost_its_permit_is_counted_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [5 * SECOND]
    monkeypatch.setattr(worker, "_now", lambda: now[0])
    permit, diary = _Permit(), worker.Diary(worker.Plan("", str(tmp_path / "log")))
    entry = diary.begin(now[0], permit)
    now[0] += SECOND // 100
    assert entry.goes_on()
    permit.lost, now[0] = True, now[0] + SECOND // 100
    entry.end()
    diary.close()
    assert [hold.end for hold in read(tmp_path / "log", 0)] == [now[0]]


@pytest.mark.parametrize("kept", [True, False])
def test_the_exit_status_says_whether_every_promise_was_kept(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.shared_permits.__main__.audit", lambda *_, **__: kept)
    assert main(["audit"]) == int(not kept)


@only_deep
def test_an_audit_notices_that_leases_are_used_for_longer_than_the_store_keeps_them() -> None:
    fault = replace(FAULTS[_CUT], seconds=3.0)
    assert not play(fault, "threads", processes=2, callers=12, used=5.0).kept
