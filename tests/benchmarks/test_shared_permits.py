"""The audit of shared permits: what a replay finds, a small audit of real processes, and one that has to fail."""

from pathlib import Path

import pytest

from benchmarks.permit_log import Hold, Log, handovers, longest_gap, most_at_once, read, tokens_grow, used
from benchmarks.shared_permits import FAULTS, run
from tests.servers import Server, redis_binary, redis_server


def test_a_replay_counts_those_that_overlap() -> None:
    assert most_at_once([]) == 0
    assert most_at_once([Hold(0, 5), Hold(5, 9)]) == 1
    assert most_at_once([Hold(0, 5), Hold(4, 9), Hold(8, 10)]) == 2
    assert most_at_once([Hold(3, 3), Hold(0, 9)]) == 1


def test_what_a_killed_process_had_begun_lasts_until_it_was_killed(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.start(1, 10, 7)
    log.start(2, 20, 8)
    log.end(1, 30)
    assert list(read(tmp_path / "log", 99)) == [Hold(10, 30, 7), Hold(20, 99, 8)]


def test_figures_of_a_replay() -> None:
    holds = [Hold(0, 50, 1), Hold(60, 100, 2)]
    assert used(holds, 1, 0, 100) == 0.9
    assert handovers(holds, 1) == [10]
    assert longest_gap(holds, 0) == 60
    assert tokens_grow(holds)
    assert not tokens_grow([Hold(0, 1, 2), Hold(2, 3, 2)])


@pytest.mark.parametrize("fault", ["nothing", "a process is killed and replaced", "SCRIPT FLUSH"])
def test_processes_never_hold_more_than_there_are(fault: str) -> None:
    with redis_server(redis_binary()) as url:
        found = run(url, 2, 1.5, FAULTS[fault][0], limit=1, callers=2, hold=0.01, lease=1.0)
    assert most_at_once(found.holds) == 1
    assert tokens_grow(found.holds)


def test_an_audit_notices_that_there_is_no_limit(valkey: Server) -> None:
    found = run(valkey.url, 1, 1.0, None, kind="none", limit=1, callers=8)
    assert most_at_once(found.holds) > 1
