"""Counters that outlive their process: each change is told once, and a forked child tells of its own alone."""

import subprocess
import sys
import threading

import pytest

from batchlimit import RateLimiter
from batchlimit.telemetry import prometheus as deltas_module
from batchlimit.telemetry.metrics import HELD, TOKENS
from batchlimit.telemetry.prometheus import Deltas
from batchlimit.telemetry.reading import Series, Sources
from tests.sync.stage import in_child


class Told:
    """A limiter, and the sums of what was told of it."""

    def __init__(self) -> None:
        self.limiter = RateLimiter.from_url("memory://", "1000/s burst 1000")
        self.sums: dict[Series, float] = {}
        self.changes = 0
        sources = Sources()
        sources.add("api", self.limiter)
        self.deltas = Deltas(sources, self._add, every=1000)

    def _add(self, series: Series, change: float) -> None:
        self.changes += 1
        self.sums[series] = self.sums.get(series, 0) + change

    @property
    def acquired(self) -> float:
        """Of any source."""
        of = self.sums.items()
        return sum(value for series, value in of if series.metric is TOKENS and series.values[2] == "acquired")

    def calls(self, count: int) -> None:
        for _ in range(count):
            assert self.limiter.try_acquire("ann")


def test_each_look_tells_of_what_has_changed_since() -> None:
    told = Told()
    for count in (3, 0, 4):
        told.calls(count)
        told.deltas.look()
    assert told.acquired == 7
    changes = told.changes
    told.deltas.look()
    assert told.changes == changes


def test_a_gauge_goes_up_and_down_and_ends_at_its_value() -> None:
    told = Told()
    told.calls(1)
    told.deltas.look()
    told.limiter.close()
    told.deltas.look()
    assert told.sums[Series(HELD, ("api",))] == told.limiter.statistics().held == 0


def test_the_last_look_is_at_the_end() -> None:
    told = Told()
    told.deltas.start()
    told.calls(5)
    told.deltas.stop()
    assert told.acquired == 5
    told.calls(5)
    told.deltas.stop()
    assert told.acquired == 5


def test_a_child_tells_of_its_own_calls_alone() -> None:
    told = Told()
    told.calls(3)
    told.deltas.look()
    told.calls(2)  # nobody told of these yet: the parent will

    def child() -> bool:
        told.sums.clear()
        told.calls(4)
        told.deltas.look()
        return told.acquired == 4

    assert in_child(child)
    told.deltas.look()
    assert told.acquired == 5


def test_what_was_ended_before_a_fork_tells_nothing_in_the_child() -> None:
    told = Told()
    told.deltas.stop()

    def child() -> bool:
        told.sums.clear()
        told.calls(4)
        told.deltas.stop()  # as at the end of the process
        return told.acquired == 0

    assert in_child(child)


FORK_AMID_A_LOOK = """
import os, threading

from batchlimit import RateLimiter
from batchlimit.telemetry.prometheus import Deltas
from batchlimit.telemetry.reading import Sources

counters = threading.Lock()  # as the one of prometheus-client, which nobody renews in a child
looks, forks, forked = threading.Event(), threading.Event(), threading.Event()


def add(labelled, change):
    with counters:
        if not looks.is_set():
            looks.set()
            forks.wait()
            forked.wait(0.2)


limiter, sources = RateLimiter.from_url("memory://", "5/s"), Sources()
sources.add("api", limiter)
deltas = Deltas(sources, add, every=1000)
os.register_at_fork(before=forks.set, after_in_parent=forked.set)
threading.Thread(target=deltas.look, daemon=True).start()
looks.wait()
if (child := os.fork()) == 0:
    os._exit(counters.locked())
assert os.waitpid(child, 0)[1] == 0, "the child cannot count"
deltas.look()
"""


def test_a_process_forks_between_two_looks() -> None:
    subprocess.run([sys.executable, "-c", FORK_AMID_A_LOOK], check=True)


def test_a_thread_that_has_forked_ends_no_pause_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deltas_module, "_PATIENCE", 0)
    one = Told().deltas
    deltas_module._before_fork()
    other = Told().deltas
    thread = threading.Thread(target=deltas_module._before_fork)
    thread.start()
    thread.join()
    deltas_module._after_in_parent()
    paused = [each.lock.acquire(timeout=0) for each in (one, other)]
    one.lock.release()
    other.lock.release()
    assert paused == [True, False], "the other thread forks still"
