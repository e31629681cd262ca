from pathlib import Path

import pytest

from batchlimit.concurrency.watchers.cgroup import Group, groups_of
from tests.concurrency.watchers.trees import Tree, write


def paths(groups: tuple[Group, ...]) -> list[Path]:
    return [group.path for group in groups]


def test_a_group_of_version_2_is_found_by_the_line_without_controllers(tree: Tree) -> None:
    own = tree.v2("app.slice/web.service")
    groups = tree.join("0::/app.slice/web.service").of("memory")
    assert paths(groups) == [own, own.parent, tree.root]
    assert {group.version for group in groups} == {2}


def test_in_a_container_the_root_is_our_group(tree: Tree) -> None:
    assert paths(tree.join("0::/").of("memory")) == []
    tree.v2()
    assert paths(tree.join("0::/").of("memory")) == [tree.root]


def test_each_controller_of_version_1_has_its_tree(tree: Tree) -> None:
    memory, cpu = tree.group("memory/docker/abc"), tree.group("cpu")
    tree.join("4:memory:/docker/abc", "3:cpu:/", "2:name=systemd:/init.scope")
    assert paths(tree.of("memory")) == [memory, memory.parent, memory.parent.parent]
    assert paths(tree.of("cpu")) == [cpu]
    assert {group.version for group in tree.of("memory")} == {1}


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu", "cpuacct"])
def test_controllers_may_share_a_tree(tree: Tree, mount: str) -> None:
    group = tree.group(f"{mount}/web")
    controller = "cpuacct" if mount == "cpuacct" else "cpu"
    assert paths(tree.join("4:cpu,cpuacct:/web").of(controller))[0] == group


def test_on_a_hybrid_machine_each_controller_is_where_it_is_bound(tree: Tree) -> None:
    memory, unified = tree.group("memory/web"), tree.group("unified/web")
    (unified.parent / "cgroup.controllers").touch()
    tree.join("4:memory:/web", "1:name=systemd:/web", "0::/web")
    assert tree.of("memory")[0] == Group(memory, 1)
    assert tree.of("cpu")[0] == Group(unified, 2)
    assert tree.of("")[0] == Group(unified, 2)


def test_a_container_told_its_path_on_the_host_is_at_the_root_of_its_mount(tree: Tree) -> None:
    mount = tree.group("memory")
    assert paths(tree.join("4:memory:/docker/abc").of("memory")) == [mount]


def test_what_it_nests_there_is_found_by_the_end_of_the_path(tree: Tree) -> None:
    nested = tree.group("memory/worker")
    assert paths(tree.join("4:memory:/docker/abc/worker").of("memory")) == [nested, nested.parent]


def test_a_group_outside_of_our_namespace_cannot_be_seen(tree: Tree) -> None:
    tree.v2("other")
    tree.group("memory/other")
    assert tree.join("0::/../other").of("cpu") == ()
    assert tree.join("4:memory:/..", "0::/").of("memory") == ()


@pytest.mark.parametrize("lines", [[], ["1:name=systemd:/"], ["4:memory:/web"], ["0::/web"]])
def test_without_a_mounted_controller_there_is_no_group(tree: Tree, lines: list[str]) -> None:
    assert tree.join(*lines).of("memory") == ()
    assert tree.of("cpu") == ()


def test_a_machine_without_control_groups_has_none(tmp_path: Path) -> None:
    assert groups_of("memory", None, tmp_path, tmp_path) == groups_of("", None, tmp_path, tmp_path) == ()


def test_a_path_may_hold_a_colon(tree: Tree) -> None:
    own = tree.v2("a:b")
    assert paths(tree.join("0::/a:b").of("cpu"))[0] == own


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("536870912", 536870912),
        ("max", None),
        ("9223372036854771712", None),  # version 1 without a limit, pages of 4 KiB
        ("9223372036854710272", None),  # pages of 64 KiB
        (str(2**50), 2**50),
    ],
)
def test_a_limit_is_a_number_or_none(tree: Tree, text: str, number: int | None) -> None:
    write(tree.root, memory_max=text)
    assert Group(tree.root, 2).number("memory.max") == number
