from pathlib import Path

import pytest

from batchlimit.concurrency.watchers import MemoryWatcher
from batchlimit.concurrency.watchers.cgroup import PROC, Group
from batchlimit.concurrency.watchers.pressure import MemoryUsage, of_group, of_machine
from batchlimit.errors import BatchLimitError, WatcherUnavailable
from tests.concurrency.watchers.trees import MIB, Tree, write

NO_LIMIT_V1 = 9223372036854771712


def v1(group: Path, used: int, limit: int, idle: int = 0, under_oom: int = 0, oom_kill: int = 0) -> None:
    """In MiB; the group's own idle files are told first, and are not those of the groups in it."""
    write(
        group,
        memory_usage_in_bytes=used * MIB,
        memory_limit_in_bytes=min(limit * MIB, NO_LIMIT_V1),
        memory_stat={"inactive_file": 7, "hierarchical_memory_limit": 1, "total_inactive_file": idle * MIB},
        memory_oom_control={"oom_kill_disable": 0, "under_oom": under_oom, "oom_kill": oom_kill},
    )


def v2(
    group: Path, used: int, limit: object, idle: int = 0, high: object = "max", events: dict[str, int] | None = None
) -> None:
    """In MiB, but for `limit` and `high` that are not numbers."""
    write(
        group,
        memory_current=used * MIB,
        memory_max=limit * MIB if isinstance(limit, int) else limit,
        memory_high=high * MIB if isinstance(high, int) else high,
        memory_stat={"anon": 5, "inactive_file": idle * MIB},
        memory_events={"low": 0, "high": 0, "max": 0, "oom": 0, "oom_kill": 0} | (events or {}),
    )


def watcher(tree: Tree, threshold: float = 0.9, low: float | None = None) -> MemoryWatcher:
    return MemoryWatcher(threshold, low=low, root=tree.root, proc=tree.proc)


@pytest.fixture
def group(tree: Tree) -> Path:
    """Our group, of version 2."""
    own = tree.v2("web")
    v2(own, 0, 100)
    tree.join("0::/web")
    return own


@pytest.mark.parametrize(
    ("used", "idle", "event"),
    [
        (89, 0, None),
        (90, 0, "memory 0.90 of 100 MiB"),
        (100, 11, None),
        (100, 10, "memory 0.90 of 100 MiB"),
        (100, 0, "memory 1.00 of 100 MiB"),
        (5, 10, None),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_what_is_used_less_what_could_be_dropped_is_held_against_the_limit(
    tree: Tree, version: int, used: int, idle: int, event: str | None
) -> None:
    if version == 1:
        v1(tree.group("memory/web"), used, 100, idle)
        tree.join("4:memory:/web")
    else:
        v2(tree.v2("web"), used, 100, idle)
        tree.join("0::/web")
    assert watcher(tree).poll() == event


def test_what_could_be_dropped_is_never_more_than_what_is_used(tree: Tree, group: Path) -> None:
    """The kernel does not count both at the same instant."""
    v2(group, 5, 100, idle=10)
    assert of_group(Group(group, 2)) == MemoryUsage(0, 100 * MIB)


@pytest.mark.parametrize(
    ("thresholds", "story"),
    [
        pytest.param((0.9, 0.8), {85: 0, 90: 1, 86: 1, 80: 1, 79: 0, 84: 0}, id="where it trembles about it"),
        pytest.param((0.8,), {80: 1, 77: 1, 76: 1, 75: 0}, id="unless told it ends a twentieth below the threshold"),
    ],
)
def test_an_event_lasts_until_memory_is_well_below_the_threshold(
    tree: Tree, group: Path, thresholds: tuple[float, ...], story: dict[int, int]
) -> None:
    watching = watcher(tree, *thresholds)
    for used, is_event in story.items():
        v2(group, used, 100)
        assert (watching.poll() is not None) == is_event, used


def test_the_tightest_limit_on_the_way_to_the_root_counts(tree: Tree) -> None:
    pod = tree.v2("pod")
    v2(tree.v2("pod/web"), 40, "max")
    v2(pod, 95, 100)
    v2(tree.v2("beside"), 100, 100)
    tree.join("0::/pod/web")
    assert watcher(tree).poll() == "memory 0.95 of 100 MiB"


def test_the_fuller_of_two_limits_counts(tree: Tree) -> None:
    v2(tree.v2("pod"), 95, 200)
    v2(tree.v2("pod/web"), 95, 100)
    tree.join("0::/pod/web")
    assert watcher(tree).poll() == "memory 0.95 of 100 MiB"


def test_beyond_memory_high_the_kernel_holds_back_so_it_is_a_limit(tree: Tree, group: Path) -> None:
    v2(group, 95, 200, high=100)
    assert watcher(tree).poll() == "memory 0.95 of 100 MiB"


def test_a_limit_of_0_is_used_up(tree: Tree, group: Path) -> None:
    v2(group, 0, 0)
    assert watcher(tree).poll() == "memory 1.00 of 0 MiB"


@pytest.mark.parametrize("limit", ["max", 1000])
def test_where_no_limit_is_below_what_the_machine_has_the_machine_counts(
    tree: Tree, group: Path, limit: int | str
) -> None:
    v2(group, 1, limit)
    tree.machine(1000 * MIB, 50 * MIB)
    assert watcher(tree).poll() == "memory 0.95 of 1000 MiB"


def test_so_it_does_for_the_huge_limit_of_version_1(tree: Tree) -> None:
    v1(tree.group("memory"), 1, NO_LIMIT_V1)
    tree.join("4:memory:/")
    assert watcher(tree).poll() is None
    tree.machine(1000 * MIB, 50 * MIB)
    assert watcher(tree).poll() == "memory 0.95 of 1000 MiB"


def test_so_it_does_without_control_groups(tree: Tree) -> None:
    tree.machine(1000 * MIB, 110 * MIB)
    watching = watcher(tree)
    assert watching.poll() is None
    tree.machine(1000 * MIB, 100 * MIB)
    assert watching.poll() == "memory 0.90 of 1000 MiB"


def test_a_full_machine_is_none_of_a_limited_groups_business(tree: Tree, group: Path) -> None:
    v2(group, 10, 100)
    tree.machine(1000 * MIB, 0)
    assert watcher(tree).poll() is None


def test_version_1_tells_of_a_lack_that_lasts(tree: Tree) -> None:
    group = tree.group("memory/web")
    tree.join("4:memory:/web")
    v1(group, 10, 100, under_oom=1)
    watching = watcher(tree)
    assert [watching.poll(), watching.poll()] == ["memory ran out, now 0.10 of 100 MiB"] * 2
    v1(group, 10, 100)
    assert watching.poll() is None


def test_version_1_tells_of_kills_since_the_last_poll(tree: Tree) -> None:
    group = tree.group("memory/web")
    tree.join("4:memory:/web")
    v1(group, 10, 100, oom_kill=3)
    watching = watcher(tree)
    assert watching.poll() is None
    v1(group, 10, 100, oom_kill=4)
    assert watching.poll() == "memory ran out, now 0.10 of 100 MiB"
    assert watching.poll() is None


@pytest.mark.parametrize(
    ("events", "is_event"),
    [({"oom": 1}, True), ({"oom_kill": 1}, True), ({"max": 9}, False), ({"high": 9}, False), ({}, False)],
)
def test_version_2_tells_of_shortages_since_the_last_poll(
    tree: Tree, group: Path, events: dict[str, int], is_event: bool
) -> None:
    """That the limit was reached is no shortage: whoever reads many files does so all the time."""
    watching = watcher(tree)
    assert watching.poll() is None
    v2(group, 10, 100, events=events)
    assert (watching.poll() is not None) is is_event
    assert watching.poll() is None


def test_counts_of_shortages_that_begin_anew_are_no_event(tree: Tree, group: Path) -> None:
    v2(group, 10, 100, events={"oom": 5})
    watching = watcher(tree)
    watching.poll()
    v2(group, 10, 100, events={"oom": 1})
    assert watching.poll() is None


def test_a_neighbours_shortage_is_no_event(tree: Tree) -> None:
    pod = tree.v2("pod")
    v2(tree.v2("pod/web"), 10, 100)
    v2(pod, 10, 100)
    tree.join("0::/pod/web")
    watching = watcher(tree)
    watching.poll()
    v2(pod, 10, 100, events={"oom": 1, "oom_kill": 1})
    assert watching.poll() is None


def test_memory_that_ran_out_and_is_full_is_one_event_and_both_are_remembered(tree: Tree, group: Path) -> None:
    watching = watcher(tree, 0.9, 0.8)
    watching.poll()
    v2(group, 95, 100, events={"oom": 1})
    assert watching.poll() == "memory ran out, now 0.95 of 100 MiB"
    v2(group, 85, 100, events={"oom": 1})
    assert watching.poll() == "memory 0.85 of 100 MiB"


def test_groups_where_memory_is_not_controlled_are_passed_over(tree: Tree) -> None:
    tree.v2("pod/web")
    v2(tree.v2("pod"), 95, 100)
    tree.join("0::/pod/web")
    assert watcher(tree).poll() == "memory 0.95 of 100 MiB"


def test_a_machine_that_does_not_tell_is_named_at_once(tree: Tree) -> None:
    with pytest.raises(WatcherUnavailable, match=f"{tree.root}.*{tree.proc}") as raised:
        watcher(tree)
    assert isinstance(raised.value, BatchLimitError)
    assert isinstance(raised.value, OSError)


def test_files_that_vanish_are_an_error_not_an_event(tree: Tree, group: Path) -> None:
    watching = watcher(tree)
    (group / "memory.current").unlink()
    with pytest.raises(FileNotFoundError):
        watching.poll()


def test_it_shows_where_it_looks(tree: Tree, group: Path) -> None:
    assert str(group) in repr(watcher(tree))


def test_this_machine_tells() -> None:
    try:
        watching = MemoryWatcher(1.0)
    except WatcherUnavailable as error:
        pytest.skip(str(error))
    usages = [each for each in (of_machine(PROC), *map(of_group, watching._groups)) if each is not None]
    assert usages
    assert all(0 < each.used <= each.limit for each in usages)
