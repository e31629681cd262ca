"""Counts of requests by rule, under threads."""

import threading

import pytest

from batchlimit.integrations.checks import Checks
from batchlimit.integrations.counters import Counters, RuleCounts
from batchlimit.rules import Rule
from tests.sync.stage import Clock

THREADS, TIMES = 8, 2000


@pytest.mark.usefixtures("restless")
def test_no_count_is_lost_among_threads() -> None:
    counters = Counters([Rule("all", "1/s", key="all")], 1.0, Clock(), Checks(False))
    together = threading.Barrier(THREADS)

    def work() -> None:
        together.wait()
        for _ in range(TIMES):
            next(counters.requests)
            counters.look({})
            next(counters.unmatched)
            next(counters.asked_after_all)
            next(counters.rules["all"].matched)
            counters.fault("ask", ["all"], "failed")

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = counters.statistics()
    assert (found.requests, found.unmatched) == (THREADS * TIMES, 0)
    assert found.rules["all"] == RuleCounts(matched=THREADS * TIMES, faults=THREADS * TIMES)
