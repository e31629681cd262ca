"""Trees of control groups, made of plain files."""

from pathlib import Path

from batchlimit.concurrency.watchers.cgroup import Group, groups_of

MIB = 2**20


class Tree:
    """A machine's /sys/fs/cgroup and /proc, in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "cgroup"
        self.proc = folder / "proc"
        self.root.mkdir()
        (self.proc / "self").mkdir(parents=True)

    def join(self, *lines: str) -> "Tree":
        """Put this process into groups, by lines of /proc/self/cgroup."""
        (self.proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))
        return self

    def of(self, controller: str) -> tuple[Group, ...]:
        return groups_of(controller, None, self.root, self.proc)

    def v2(self, path: str = "") -> Path:
        """Mount version 2, and make a group there."""
        (self.root / "cgroup.controllers").write_text("cpu io memory\n")
        return self.group(path)

    def group(self, path: str) -> Path:
        group = self.root / path
        group.mkdir(parents=True, exist_ok=True)
        return group

    def machine(self, total: int, available: int) -> None:
        """Have /proc/meminfo tell how much memory there is; in bytes."""
        text = f"MemTotal: {total // 1024} kB\nMemAvailable: {available // 1024} kB\nHugePages_Total: 0\n"
        (self.proc / "meminfo").write_text(text)


def write(group: Path, **files: object) -> None:
    """Write files of a group; memory_max is memory.max, and a mapping becomes a line for each name."""
    for name, content in files.items():
        text = "".join(f"{k} {v}\n" for k, v in content.items()) if isinstance(content, dict) else f"{content}\n"
        (group / name.replace("_", ".", 1)).write_text(text)
