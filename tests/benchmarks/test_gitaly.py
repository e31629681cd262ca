"""Gitaly's limits on a real gRPC server: each holds, and who waits too long is refused."""

from dataclasses import replace

import pytest

from benchmarks.gitaly import LOAD, Callers, Finding, measure
from benchmarks.gitaly_server import HTTP, LIMITS, SSH
from tests.depth import depth


def test_each_limit_holds_and_each_queue_is_as_long_as_it_is_told() -> None:
    slow = "slow clones of one repository"  # each far longer than anybody may wait, so that a busy server refuses too
    load = [replace(each, seconds=5.0 if each.name == slow else 0.1) for each in LOAD]
    ends, found = measure(load, 1.5)
    assert all(each.kept for each in found)
    most = {each.pattern: each.most for each in found}
    assert most[f"{SSH} repo:*"] == 20
    assert ends[slow]["queue_full"]
    assert min(ends[slow]["queue_timeout"]) >= 1.0
    assert "queue_timeout" not in ends["one user, many repositories"]


@pytest.mark.parametrize(("callers", "most"), depth([(16, 15)], [(10, 10), (16, 15), (30, 15)]))
def test_a_user_gets_no_more_than_the_limit_of_a_user_however_many_repositories(callers: int, most: int) -> None:
    load = [Callers("one user", callers, HTTP, 1000, 1, 0.5)]
    ends, found = measure(load, 0.1)
    assert {each.pattern: each.most for each in found}["user:*"] <= most
    assert len(ends["one user"]["served"]) >= callers


def test_a_finding_shows_a_limit_that_was_exceeded() -> None:
    keyed = LIMITS["user:*"]
    assert Finding("user:*", keyed, 15, 0, {}).kept
    broken = Finding("user:*", keyed, 16, 3, {"queue_full": 2})
    assert broken.row() == ["`user:*`", "16 of 15 **BROKEN**", "200, 60 s", "3", "2 queue_full"]
