"""The control groups of this process, or one by name, and what their files say.

Facts from the kernel's admin guide (cgroup-v2, cgroup-v1) and cgroups(7), cgroup_namespaces(7). Version 1 has a tree
for each controller, mounted under the controller's name; version 2 has one tree for all. On a hybrid machine both are
mounted, version 2 as `unified`, and each controller belongs to one of them.
"""

from collections.abc import Iterator
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


class Membership:
    """The groups of this process, read once: a process is put into its groups before its program starts.

    `root` is where the trees are mounted, `proc` where processes are.
    """

    __slots__ = ("_root", "_unified", "_v1")

    def __init__(self, root: Path = ROOT, proc: Path = PROC) -> None:
        self._root = root
        self._unified: str | None = None
        self._v1: dict[str, tuple[str, str]] = {}
        for controllers, path in _lines(proc / "self" / "cgroup"):
            if not controllers:
                self._unified = path
            for controller in controllers.split(","):
                self._v1[controller] = (controllers, path)

    def of(self, controller: str) -> tuple[Group, ...]:
        """Return the group of this process, then its parent, and so on up: the limits of all of them hold.

        Empty where there are no control groups, or where ours cannot be seen.
        """
        if controller not in self._v1:
            return self.unified()
        controllers, path = self._v1[controller]
        # Controllers that share a tree are mounted as "cpu,cpuacct", with a link for each; some machines lack links.
        mounts = (self._root / controllers, self._root / controller)
        mount = next((each for each in mounts if each.is_dir()), None)
        return () if mount is None else tuple(Group(each, 1) for each in _lineage(mount, path))

    def unified(self) -> tuple[Group, ...]:
        """Return our groups of version 2, in the same order; on a hybrid machine too."""
        if self._unified is None:
            return ()
        mount = self._root if (self._root / "cgroup.controllers").is_file() else self._root / "unified"
        return tuple(Group(each, 2) for each in _lineage(mount, self._unified))


def groups_of(controller: str, name: str | None, root: Path, proc: Path) -> tuple[Group, ...]:
    """Return the groups of this process, its own first; or the one of this name alone."""
    return Membership(root, proc).of(controller) if name is None else (named(name, controller, root),)


def named(name: str, controller: str, root: Path = ROOT) -> Group:
    """Return the group of this path below the mount; "" as the controller stands for the tree of version 2.

    Raises:
        TypeError: The path is no str.
        WatcherUnavailable: There is no such group.
    """
    if not isinstance(name, str):
        raise TypeError(f"a control group is named by its path, like 'system.slice/web.service', not {name!r}")
    names = [each for each in name.split("/") if each]
    if names and ".." not in names:
        for mount, version in _mounts(controller, root):
            if (path := mount.joinpath(*names)).is_dir():
                return Group(path, version)
    where = f"for {controller} under {root}" if controller else f"of version 2 under {root}"
    raise WatcherUnavailable(
        f"no control group {name!r} {where}; name it by its path below the mount, like 'system.slice/web.service'"
    )


def _mounts(controller: str, root: Path) -> Iterator[tuple[Path, Literal[1, 2]]]:
    """Yield where groups of a controller may be: its own tree of version 1, then the tree of version 2."""
    if controller and root.is_dir():
        for mount in sorted(root.iterdir()):
            if controller in mount.name.split(","):
                yield mount, 1
    yield (root if (root / "cgroup.controllers").is_file() else root / "unified"), 2


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """Yield controllers and path of each tree; nothing on a machine without control groups."""
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        yield controllers, path


def _lineage(mount: Path, path: str) -> tuple[Path, ...]:
    """Return the directory of a group and those that hold it, up to the mount.

    In a container `/proc` may show the path on the host, while the container's own group is mounted as the root. So
    leading names are dropped until there is such a directory.
    """
    names = [name for name in path.split("/") if name]
    if ".." in names:  # outside of the namespace of this process: nothing here is about it
        return ()
    while not mount.joinpath(*names).is_dir() and names:
        del names[0]
    if not mount.is_dir():
        return ()
    return tuple(mount.joinpath(*names[:depth]) for depth in range(len(names), -1, -1))
