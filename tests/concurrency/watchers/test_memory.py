from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batchlimit.concurrency.watchers import MemoryWatcher
from batchlimit.concurrency.watchers.cgroup import PROC
from batchlimit.concurrency.watchers.pressure import of_group, of_machine
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


@pytest.mark.parametrize(
    ("groups", "available", "event"),
    [
        pytest.param(
            {"pod": (95, 100), "pod/web": (40, "max"), "beside": (100, 100)}, None, "memory 0.95 of 100 MiB",
            id="the tightest on the way to the root",
        ),
        pytest.param({"pod": (95, 200), "pod/web": (95, 100)}, None, "memory 0.95 of 100 MiB", id="the fuller of two"),
        pytest.param({"pod": (95, 100), "pod/web": None}, None, "memory 0.95 of 100 MiB", id="one without control"),
        pytest.param(
            {"pod/web": (95, 200, 0, 100)}, None, "memory 0.95 of 100 MiB",
            id="beyond memory.high the kernel holds back: it is a limit",
        ),
        pytest.param({"pod/web": (0, 0)}, None, "memory 1.00 of 0 MiB", id="a limit of 0 is used up"),
        pytest.param({"pod/web": (1, "max")}, 50, "memory 0.95 of 1000 MiB", id="no limit: the machine's"),
        pytest.param({"pod/web": (1, 1000)}, 50, "memory 0.95 of 1000 MiB", id="a limit not below the machine's"),
        pytest.param({"pod/web": (10, 100)}, 0, None, id="a full machine is none of a limited group's business"),
    ],
)  # fmt: skip
def test_the_limit_that_counts(
    tree: Tree, groups: dict[str, tuple[Any, ...] | None], available: int | None, event: str | None
) -> None:
    for path, figures in groups.items():
        group = tree.v2(path)
        if figures is not None:
            v2(group, *figures)
    if available is not None:
        tree.machine(1000 * MIB, available * MIB)
    tree.join("0::/pod/web")
    assert watcher(tree).poll() == event


@pytest.mark.parametrize("version", [0, 1], ids=["without control groups", "by the huge limit of version 1"])
def test_the_machine_counts_where_no_group_has_a_limit(tree: Tree, version: int) -> None:
    if version:
        v1(tree.group("memory"), 1, NO_LIMIT_V1)
        tree.join("4:memory:/")
    tree.machine(1000 * MIB, 110 * MIB)
    watching = watcher(tree)
    assert watching.poll() is None
    tree.machine(1000 * MIB, 100 * MIB)
    assert watching.poll() == "memory 0.90 of 1000 MiB"


def test_version_1_tells_of_a_lack_that_lasts(tree: Tree) -> None:
    group = tree.group("memory/web")
    tree.join("4:memory:/web")
    v1(group, 10, 100, under_oom=1)
    watching = watcher(tree)
    assert [watching.poll(), watching.poll()] == ["memory ran out, now 0.10 of 100 MiB"] * 2
    v1(group, 10, 100)
    assert watching.poll() is None


@pytest.mark.parametrize(
    ("version", "before", "events", "is_event"),
    [
        (1, {"oom_kill": 3}, {"oom_kill": 4}, True),
        (2, {}, {"oom": 1}, True),
        (2, {}, {"oom_kill": 1}, True),
        (2, {}, {"max": 9}, False),
        (2, {}, {"high": 9}, False),
        (2, {"oom": 5}, {"oom": 1}, False),  # they began anew
    ],
)
def test_a_shortage_since_the_last_poll_is_told_once(
    tree: Tree, version: int, before: dict[str, int], events: dict[str, int], is_event: bool
) -> None:
    """That the limit was reached is no shortage: whoever reads many files does so all the time."""
    group = tree.group("memory/web") if version == 1 else tree.v2("web")
    tree.join("4:memory:/web" if version == 1 else "0::/web")
    tell: Any = partial(v1, group, 10, 100) if version == 1 else lambda **told: v2(group, 10, 100, events=told)
    tell(**before)
    watching = watcher(tree)
    assert watching.poll() is None
    tell(**events)
    assert watching.poll() == ("memory ran out, now 0.10 of 100 MiB" if is_event else None)
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
    assert all(0 < share <= 1 for share, _limit in usages)
