"""Watchers of a control group that this process is not in."""

from collections.abc import Callable
from typing import Any

import pytest

from batchlimit.concurrency.watchers import MemoryWatcher, PressureWatcher, ProcessorWatcher, ThrottlingWatcher
from batchlimit.errors import WatcherUnavailable
from tests.concurrency.watchers.test_cpu import stat
from tests.concurrency.watchers.trees import MIB, Tree, write

ALL: list[Callable[..., Any]] = [
    MemoryWatcher,
    ThrottlingWatcher,
    ProcessorWatcher,
    lambda **options: PressureWatcher("memory", **options),
]


@pytest.fixture
def repos(tree: Tree) -> Tree:
    """A machine with memory in plenty, and a group of which all is used up, beside the one of this process."""
    tree.machine(1000 * MIB, 900 * MIB)
    tree.v2("web")
    tree.join("0::/web")
    group = tree.v2("gitaly/repos-7")
    write(group, memory_current=95 * MIB, memory_max=100 * MIB, memory_high="max", memory_stat={"inactive_file": 0})
    write(group, memory_events={"oom": 0, "oom_kill": 0})
    stat(group, 2, 0, 0)
    return tree


def options(tree: Tree, group: str | None) -> dict[str, Any]:
    return {"root": tree.root, "proc": tree.proc, "group": group}


def test_memory_of_a_group_is_that_of_its_own_limit(repos: Tree) -> None:
    watcher = MemoryWatcher(**options(repos, "gitaly/repos-7"))
    assert (watcher.name, watcher.poll()) == ("memory gitaly/repos-7", "memory 0.95 of 100 MiB")
    assert MemoryWatcher(**options(repos, None)).poll() is None


def test_memory_of_a_group_that_lost_its_limit_is_no_event(repos: Tree) -> None:
    """Nor does the machine's count instead."""
    watcher = MemoryWatcher(**options(repos, "gitaly/repos-7"))
    repos.machine(100 * MIB, 0)
    write(repos.group("gitaly/repos-7"), memory_max="max")
    assert watcher.poll() is None


def test_a_group_without_a_limit_of_memory_is_told(repos: Tree) -> None:
    write(repos.group("gitaly/repos-7"), memory_max="max")
    with pytest.raises(WatcherUnavailable, match=r"'gitaly/repos-7' .* has no limit of memory to come near to"):
        MemoryWatcher(**options(repos, "gitaly/repos-7"))


def test_throttling_of_a_group(repos: Tree) -> None:
    watcher = ThrottlingWatcher(**options(repos, "gitaly/repos-7"))
    assert watcher.poll() is None
    stat(repos.group("gitaly/repos-7"), 2, 10, 9, 1.5)
    assert (watcher.name, watcher.poll()) == ("cpu gitaly/repos-7", "cpu throttled in 0.90 of 10 periods, for 1.5 s")


def test_pressure_of_a_group(repos: Tree) -> None:
    now = [0.0]
    file = repos.group("gitaly/repos-7") / "memory.pressure"
    file.write_text("some avg10=0.00 total=0\n")
    watcher = PressureWatcher("memory", clock=lambda: now[0], **options(repos, "gitaly/repos-7"))
    assert watcher.poll() is None
    now[0] += 10
    file.write_text("some avg10=0.00 total=6000000\n")
    assert watcher.poll() == "pressure memory some gitaly/repos-7 for 0.60 of 10.0 s"


def test_pressure_of_a_group_that_tells_none_is_not_that_of_the_machine(repos: Tree) -> None:
    (repos.proc / "pressure").mkdir()
    (repos.proc / "pressure" / "memory").write_text("some avg10=0.00 total=0\n")
    with pytest.raises(WatcherUnavailable, match=r"'gitaly/repos-7' .* does not tell 'some' pressure"):
        PressureWatcher("memory", **options(repos, "gitaly/repos-7"))


@pytest.mark.parametrize("watcher", ALL)
@pytest.mark.parametrize("name", ["gone", "", "/", "../cgroup/web", "web/../web"])
def test_a_group_that_is_not_there_is_told(repos: Tree, watcher: Callable[..., Any], name: str) -> None:
    with pytest.raises(WatcherUnavailable, match=rf"no control group '{name}' .*; name it by its path below"):
        watcher(**options(repos, name))


@pytest.mark.parametrize("watcher", ALL)
def test_a_group_is_named_by_a_text(repos: Tree, watcher: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="a control group is named by its path"):
        watcher(**options(repos, 7))  # type: ignore[arg-type]
