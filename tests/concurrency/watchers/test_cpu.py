from pathlib import Path

import pytest

from batchlimit.concurrency.watchers import ThrottlingWatcher
from batchlimit.concurrency.watchers.cgroup import PROC, ROOT, groups_of
from batchlimit.concurrency.watchers.cpu import throttling_of
from batchlimit.errors import WatcherUnavailable
from tests.concurrency.watchers.trees import Tree, write


def stat(group: Path, version: int, periods: int, throttled: int, seconds: float = 0.0) -> None:
    """Version 1 counts in ns, version 2 in us; only the latter tells of use, even where nothing is controlled."""
    if version == 1:
        time = {"throttled_time": round(seconds * 1_000_000_000)}
    else:
        time = {"usage_usec": 1, "throttled_usec": round(seconds * 1_000_000)}
    write(group, cpu_stat={"nr_periods": periods, "nr_throttled": throttled} | time)


class Machine:
    """Our group, of either version."""

    def __init__(self, tree: Tree, version: int) -> None:
        self.tree = tree
        self.version = version
        self.group = tree.group("cpu/web") if version == 1 else tree.v2("web")
        tree.join("4:cpu:/web" if version == 1 else "0::/web")
        self.count(0, 0)

    def count(self, periods: int, throttled: int, seconds: float = 0.0) -> None:
        stat(self.group, self.version, periods, throttled, seconds)

    def watcher(self, threshold: float = 0.5, low: float | None = None) -> ThrottlingWatcher:
        return ThrottlingWatcher(threshold, low=low, root=self.tree.root, proc=self.tree.proc)


@pytest.fixture(params=[1, 2])
def machine(request: pytest.FixtureRequest, tree: Tree) -> Machine:
    return Machine(tree, request.param)


@pytest.mark.parametrize(("throttled", "is_event"), [(0, False), (49, False), (50, True), (100, True)])
def test_the_share_of_periods_since_the_last_poll_counts(machine: Machine, throttled: int, is_event: bool) -> None:
    machine.count(1000, 900)
    watcher = machine.watcher()
    watcher.poll()
    machine.count(1100, 900 + throttled)
    assert (watcher.poll() is not None) is is_event


def test_the_time_is_told_in_seconds_whatever_the_version_counts(machine: Machine) -> None:
    """It may pass the time that went by: it is summed over processors, so it decides nothing."""
    machine.count(0, 0, 0.5)
    watcher = machine.watcher()
    watcher.poll()
    machine.count(300, 186, 124.25)
    assert watcher.poll() == "cpu throttled in 0.62 of 300 periods, for 123.8 s"


def test_without_the_cpu_controller_there_is_nothing_to_watch(tree: Tree) -> None:
    write(tree.v2("web"), cpu_stat={"usage_usec": 5})
    tree.join("0::/web")
    with pytest.raises(WatcherUnavailable, match=str(tree.root)):
        ThrottlingWatcher(root=tree.root, proc=tree.proc)


def test_it_shows_where_it_looks(machine: Machine) -> None:
    assert str(machine.group) in repr(machine.watcher())


def test_this_machine_counts() -> None:
    if not any(throttling_of(group) for group in groups_of("cpu", None, ROOT, PROC)):
        pytest.skip("no control group of this process counts periods")
    watcher = ThrottlingWatcher(1.0)
    assert watcher.poll() is None
