"""Watchers of what a machine runs short of: memory, and whatever tasks stand still for.

Pressure stall information (PSI) is there since Linux 4.20. From the kernel's accounting/psi: a file has a line `some`
(at least one task stood still) and a line `full` (all of them did). Each has averages and a `total`: the microseconds
that passed so.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from batchlimit.concurrency.watchers.cgroup import PROC, ROOT, Group, groups_of
from batchlimit.concurrency.watchers.watcher import Counted, ShareThreshold
from batchlimit.errors import WatcherUnavailable

Resource = Literal["cpu", "memory", "io"]
Kind = Literal["some", "full"]


class PressureWatcher:
    """Tells when tasks stood still for too large a share of the time since the last poll.

    The tasks are those of the control group of this process; where it has no such file, those of the machine. The share
    is the difference of `total` since the last poll: the kernel's averages reach back over other windows.

    Args:
        resource: "cpu", "memory" or "io".
        kind: "some" (default): at least one task stood still; "full": all of them did.
        threshold: From this share of the time on it is an event (above 0, at most 1, default 0.5).
        low: An event lasts until the share falls below this (None, the default: `threshold`).
        group, root, proc: As of MemoryWatcher, with the same defaults.
        clock: Returns seconds (default `time.monotonic`).

    Raises:
        TypeError, ValueError: A share is no number in its range, or there is no such resource or kind.
        WatcherUnavailable: There is no such group, or no such file can be read: on macOS, or with PSI off.

    Example:
        >>> from batchlimit.errors import WatcherUnavailable
        >>> from batchlimit.watchers import PressureWatcher
        >>> try:
        ...     watchers = [PressureWatcher("memory", "some", 0.2)]
        ... except WatcherUnavailable:
        ...     watchers = []
    """

    __slots__ = ("_clock", "_file", "_kind", "_threshold", "name")

    def __init__(
        self,
        resource: Resource,
        kind: Kind = "some",
        threshold: float = 0.5,
        *,
        low: float | None = None,
        group: str | None = None,
        root: Path = ROOT,
        proc: Path = PROC,
        clock: Callable[[], float] = time.monotonic,  # like the totals, it stands still while the machine sleeps
    ) -> None:
        if resource not in get_args(Resource):
            raise ValueError(f"a resource must be 'cpu', 'memory' or 'io', not {resource!r}")
        if kind not in get_args(Kind):
            raise ValueError(f"a kind of pressure must be 'some' or 'full', not {kind!r}")
        self.name = f"pressure {resource} {kind}{'' if group is None else f' {group}'}"
        self._threshold = ShareThreshold(threshold, low)
        self._clock, self._kind = clock, kind
        files = [each.path / f"{resource}.pressure" for each in groups_of("", group, root, proc)[:1]]
        for file in files if group is not None else [*files, proc / "pressure" / resource]:
            try:
                _stalled(file, kind)
            except (OSError, KeyError):  # PSI may be off for a group alone, and old kernels know no `full` for cpu
                continue
            self._file = file
            return
        if group is not None:
            raise WatcherUnavailable(f"the control group {group!r} under {root} does not tell {kind!r} pressure")
        raise WatcherUnavailable(f"neither the control group nor {proc}/pressure/{resource} tells {kind!r} pressure")

    def __repr__(self) -> str:
        return f"<PressureWatcher of {self._kind!r} in {self._file}: {self._threshold!r}>"

    def poll(self) -> str | None:
        """Return a reason to back off if tasks stood still for too long since the last poll."""
        now = self._clock()
        worst = self._threshold.worst({self.name: Counted(_stalled(self._file, self._kind), now)})
        return None if worst is None else f"{self.name} for {worst[0]:.2f} of {worst[2]:.1f} s"


def _stalled(file: Path, kind: Kind) -> float:
    """Return for how many seconds tasks have stood still so far; the files count microseconds."""
    totals: dict[str, float] = {}
    for line in file.read_text().splitlines():
        each, *pairs = line.split()
        totals[each] = int(dict(pair.split("=") for pair in pairs)["total"]) / 1e6
    return totals[kind]


USED = {1: "memory.usage_in_bytes", 2: "memory.current"}
"""The file that a group has if memory is controlled there, by version."""
_LIMITS = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}  # beyond `high` the kernel slows it down
_IDLE = {1: "total_inactive_file", 2: "inactive_file"}  # unread files, which the kernel drops before anyone starves


Usage = tuple[float, int]
"""Which share of a limit is used of memory that is not free, and could not be in a moment; and the limit (bytes)."""


def of_group(group: Group) -> Usage | None:
    """Return the use of a group, with all groups in it; None where it has no limit."""
    limit = min((each for each in map(group.number, _LIMITS[group.version]) if each is not None), default=None)
    used = group.number(USED[group.version])
    if limit is None or used is None:
        return None
    used -= group.table("memory.stat")[_IDLE[group.version]]
    return max(0, used) / limit if limit > 0 else 1.0, limit


def of_machine(proc: Path) -> Usage | None:
    """Return the use of the whole machine; None where it does not tell."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except FileNotFoundError:
        return None
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return (kib["MemTotal"] - kib["MemAvailable"]) / kib["MemTotal"], 1024 * kib["MemTotal"]


_RELIEF = 0.95
"""An event lasts until use falls below this part of the threshold. Use trembles with each collection of garbage, by
more than the kernel's own counts do (it batches them: 64 pages for each processor)."""


class MemoryWatcher:
    """Sees that memory is used up to a share of its limit, or that it ran out since the last poll.

    The limit is the tightest on the way from this process's control group to the root, `memory.high` included, or what
    the machine has. A lack of memory that lasts (version 1 of control groups tells so), or ended in killing, is an
    event too. Reaching the limit alone is none: a group that reads many files does so all the time.

    Args:
        threshold: From this share of the limit on it is an event (above 0, at most 1, default 0.9).
        low: An event lasts until use falls below this share (None, the default: 0.95 x `threshold`).
        group: The path of another control group below the mount, such as "gitaly/repos-7", whose limit counts alone
            (default None: the groups of this process).
        root: Where the trees of control groups are mounted (default /sys/fs/cgroup).
        proc: Where processes are (default /proc).

    Raises:
        TypeError, ValueError: A share is no number in its range.
        WatcherUnavailable: The group is not there or has no limit; or nothing tells the use of memory, as on macOS.

    Example:
        >>> from batchlimit.errors import WatcherUnavailable
        >>> from batchlimit.watchers import MemoryWatcher
        >>> try:
        ...     watchers = [MemoryWatcher(0.85)]
        ... except WatcherUnavailable:
        ...     watchers = []
    """

    __slots__ = ("_groups", "_proc", "_shortages", "_threshold", "name")

    def __init__(
        self,
        threshold: float = 0.9,
        *,
        low: float | None = None,
        group: str | None = None,
        root: Path = ROOT,
        proc: Path = PROC,
    ) -> None:
        self.name = "memory" if group is None else f"memory {group}"
        self._threshold = ShareThreshold(threshold, low, _RELIEF)
        self._groups = tuple(each for each in groups_of("memory", group, root, proc) if each.has(USED[each.version]))
        self._proc = proc if group is None else None
        self._shortages: int | None = None
        if group is not None and not any(map(of_group, self._groups)):
            raise WatcherUnavailable(f"the control group {group!r} under {root} has no limit of memory to come near to")
        if not self._groups and of_machine(proc) is None:
            raise WatcherUnavailable(f"no control group under {root} and no {proc}/meminfo tell the use of memory")

    def __repr__(self) -> str:
        where = self._groups[0].path if self._groups else "the machine"
        return f"<MemoryWatcher of {where}: {self._threshold!r}>"

    def poll(self) -> str | None:
        """Return a reason to back off if memory is short, or ran out since the last poll."""
        machine = None if self._proc is None else of_machine(self._proc)
        usages = [each for each in map(of_group, self._groups) if each is not None]
        if machine is not None:
            usages = [each for each in usages if each[1] < machine[1]] or [machine]
        share, limit = max(usages, default=(0.0, 0))
        now, ran_out = f"{share:.2f} of {limit / 2**20:.0f} MiB", False
        if self._groups:
            own = self._groups[0]  # the others count what befell groups beside ours, too
            told = own.table("memory.oom_control" if own.version == 1 else "memory.events")
            before, self._shortages = self._shortages, told.get("oom", 0) + told.get("oom_kill", 0)
            ran_out = told.get("under_oom", 0) > 0 or (before is not None and self._shortages > before)
        full = bool(usages) and self._threshold.update(share)  # each time: it remembers what it saw
        if ran_out:
            return f"memory ran out, now {now}" if usages else "memory ran out"
        return f"memory {now}" if full else None
