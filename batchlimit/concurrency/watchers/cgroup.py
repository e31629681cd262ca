"""The control groups of this process, or one by name, and what their files say.

Facts from the kernel's admin guide (cgroup-v2, cgroup-v1) and cgroups(7), cgroup_namespaces(7). Version 1 has a tree
for each controller, mounted under the controller's name; version 2 has one tree for all. On a hybrid machine both are
mounted, version 2 as `unified`, and each controller belongs to one of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from batchlimit.errors import WatcherUnavailable

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
_HUGE = 1 << 60
"""Bytes. Version 1 has no word for "no limit": it shows the largest whole number of pages, just below 2**63 bytes."""


@dataclass(frozen=True, slots=True)
class Group:
    """A directory of a tree of control groups. A file that is not there raises OSError."""

    path: Path
    version: Literal[1, 2]

    def has(self, file: str) -> bool:
        """Whether this group has such a file; the root of a tree lacks most, and so do controllers that are off."""
        return (self.path / file).is_file()

    def number(self, file: str) -> int | None:
        """Return the one number of a file; None where it says that there is no limit."""
        text = (self.path / file).read_text().strip()
        return None if text == "max" or int(text) >= _HUGE else int(text)

    def table(self, file: str) -> dict[str, int]:
        """Return the numbers of a file that has a name and a number on each line."""
        lines = (line.split() for line in (self.path / file).read_text().splitlines())
        return {name: int(number) for name, number in lines}


def groups_of(controller: str, name: str | None, root: Path, proc: Path) -> tuple[Group, ...]:
    """Return the group of this process and those that hold it, upwards, none if unseen; or the one of this name."""
    if name is not None:
        return (named(name, controller, root),)
    trees = dict[str, tuple[str, str]]()
    file = proc / "self" / "cgroup"
    for line in file.read_text().splitlines() if file.exists() else ():
        _, controllers, path = line.split(":", 2)
        trees |= dict.fromkeys(controllers.split(","), (controllers, path))
    if controller and controller in trees:
        controllers, path = trees[controller]
        # Controllers that share a tree are mounted as "cpu,cpuacct", with a link for each; some machines lack links.
        mount = next((each for each in (root / controllers, root / controller) if each.is_dir()), None)
        return () if mount is None else tuple(Group(each, 1) for each in _lineage(mount, path))
    return tuple(Group(each, 2) for each in _lineage(_unified(root), trees[""][1])) if "" in trees else ()


def named(name: str, controller: str, root: Path = ROOT) -> Group:
    """Return the group of this path below the mount, or raise; "" as the controller is the tree of version 2."""
    if not isinstance(name, str):
        raise TypeError(f"a control group is named by its path, like 'system.slice/web.service', not {name!r}")
    names = [each for each in name.split("/") if each]
    if names and ".." not in names:
        trees = sorted(root.iterdir()) if controller and root.is_dir() else []
        groups = [Group(each.joinpath(*names), 1) for each in trees if controller in each.name.split(",")]
        for group in (*groups, Group(_unified(root).joinpath(*names), 2)):
            if group.path.is_dir():
                return group
    where = f"for {controller} under {root}" if controller else f"of version 2 under {root}"
    raise WatcherUnavailable(
        f"no control group {name!r} {where}; name it by its path below the mount, like 'system.slice/web.service'"
    )


def _unified(root: Path) -> Path:
    return root if (root / "cgroup.controllers").is_file() else root / "unified"


def _lineage(mount: Path, path: str) -> tuple[Path, ...]:
    """Return the directory of a group and those that hold it, up to the mount."""
    names = [name for name in path.split("/") if name]
    if ".." in names:  # outside of the namespace of this process: nothing here is about it
        return ()
    while not mount.joinpath(*names).is_dir() and names:  # in a container that knows its path on the host
        del names[0]
    if not mount.is_dir():
        return ()
    return tuple(mount.joinpath(*names[:depth]) for depth in range(len(names), -1, -1))
