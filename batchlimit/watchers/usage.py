"""How much memory is used of how much there is."""

from dataclasses import dataclass
from pathlib import Path

from batchlimit.watchers.cgroup import Group

USED = {1: "memory.usage_in_bytes", 2: "memory.current"}
"""The file that a group has if memory is controlled there, by version."""
_LIMITS = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}
_IDLE = {1: "total_inactive_file", 2: "inactive_file"}  # version 2 counts the groups in a group in any case


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory that is not free, and could not be in a moment; both in bytes."""

    used: int
    limit: int

    def __str__(self) -> str:
        return f"{self.share:.2f} of {self.limit / 2**20:.0f} MiB"

    @property
    def share(self) -> float:
        """How much of the limit is used; 1: there is no more."""
        return self.used / self.limit if self.limit > 0 else 1.0


def of_group(group: Group) -> Usage | None:
    """Return the use of a group, with all groups in it; None where it has no limit.

    Files that nobody has read for a while are counted by the kernel, but it drops them before it lets anyone starve.
    `memory.high` is a limit as well: beyond it the kernel slows allocations down until the group shrinks.
    """
    limits = [each for each in map(group.number, _LIMITS[group.version]) if each is not None]
    used = group.number(USED[group.version])
    if not limits or used is None:
        return None
    return Usage(max(0, used - group.table("memory.stat")[_IDLE[group.version]]), min(limits))


def of_machine(proc: Path) -> Usage | None:
    """Return the use of the whole machine; None where it does not tell."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except FileNotFoundError:
        return None
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return Usage(1024 * (kib["MemTotal"] - kib["MemAvailable"]), 1024 * kib["MemTotal"])
