"""Whether this process is held back for having used its share of the processors."""

import time
from collections.abc import Callable
from pathlib import Path

from batchlimit.concurrency.watchers.cgroup import PROC, ROOT, Group, groups_of
from batchlimit.concurrency.watchers.watcher import Counted, ShareThreshold
from batchlimit.errors import WatcherUnavailable


def throttling_of(group: Group) -> Counted | None:
    """Return in how many of a group's periods it was held back, and for how long; None: it counts nothing."""
    told = group.table("cpu.stat") if group.has("cpu.stat") else {}
    if "nr_periods" not in told:
        return None
    # Version 1 counts nanoseconds, version 2 microseconds.
    seconds = told["throttled_time"] / 1e9 if group.version == 1 else told["throttled_usec"] / 1e6
    return Counted(told["nr_throttled"], told["nr_periods"], seconds=seconds)


class ThrottlingWatcher:
    """Sees that the kernel held a group of this process back, in a share of the periods since the last poll.

    It counts periods, not time, which is summed over processors. Of the groups on the way to the root the one that is
    worst off counts. Without a quota nothing is ever held back.

    Args:
        threshold: From this share of periods on it is an event (above 0, at most 1, default 0.5).
        low: An event lasts until the share falls below this (None, the default: `threshold`).
        group, root, proc: As of MemoryWatcher, with the same defaults.

    Raises:
        TypeError, ValueError: A share is no number in its range.
        WatcherUnavailable: There is no such group, or it counts no periods: on macOS, or without the cpu controller.

    Example:
        >>> from batchlimit.errors import WatcherUnavailable
        >>> from batchlimit.watchers import ThrottlingWatcher
        >>> try:
        ...     watchers = [ThrottlingWatcher(0.3)]
        ... except WatcherUnavailable:
        ...     watchers = []
    """

    __slots__ = ("_groups", "_threshold", "name")

    def __init__(
        self,
        threshold: float = 0.5,
        *,
        low: float | None = None,
        group: str | None = None,
        root: Path = ROOT,
        proc: Path = PROC,
    ) -> None:
        self.name = "cpu" if group is None else f"cpu {group}"
        self._threshold = ShareThreshold(threshold, low)
        self._groups = tuple(each for each in groups_of("cpu", group, root, proc) if throttling_of(each) is not None)
        if not self._groups:
            whose = "of this process" if group is None else repr(group)
            raise WatcherUnavailable(f"no control group {whose} under {root} counts periods in its cpu.stat")

    def __repr__(self) -> str:
        return f"<ThrottlingWatcher of {self._groups[0].path}: {self._threshold!r}>"

    def poll(self) -> str | None:
        """Return a reason to back off if groups were held back too often since the last poll."""
        seen = {str(each.path): now for each in self._groups if (now := throttling_of(each)) is not None}
        if (worst := self._threshold.worst(seen)) is None:
            return None
        return f"cpu throttled in {worst[0]:.2f} of {worst[2]} periods, for {worst[3]:.1f} s"


_IDLE = (3, 4)
"""Where in the first line of /proc/stat idle time stands, and time that was idle but for input and output."""
_COUNTED = 8
"""The numbers after these are of guests, whose time the first ones have already."""


def used_by(group: Group) -> float | None:
    """Return how many seconds of processors a group has used so far; None where it does not tell."""
    if group.version == 1:
        return (group.number("cpuacct.usage") or 0) / 1e9 if group.has("cpuacct.usage") else None
    return group.table("cpu.stat")["usage_usec"] / 1e6 if group.has("cpu.stat") else None


def quota_of(group: Group) -> float | None:
    """Return how many processors a group may use at once; None where it has no quota."""
    files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if group.version == 1 else ("cpu.max",)
    if not group.has(files[0]):
        return None
    most, period = " ".join((group.path / each).read_text() for each in files).split()
    return None if most in ("max", "-1") else int(most) / int(period)


class ProcessorWatcher:
    """Sees that the processors were used up to a share of what there is, since the last poll.

    What there is: the quota of the control group of this process and of each that holds it, of which the worst off
    counts; or the machine's processors, whoever uses them. ThrottlingWatcher sees a quota used up, this one before.

    Args:
        threshold: From this share on it is an event (above 0, at most 1, default 0.9).
        low: An event lasts until the share falls below this (None, the default: `threshold`).
        group: The path of another control group below the mount, such as "gitaly/repos-7" (default None: the groups of
            this process). The use of all its processes counts, by its quota or else by the machine's processors.
        root, proc: As of MemoryWatcher, with the same defaults.
        clock: Returns seconds (default `time.monotonic`).

    Raises:
        TypeError, ValueError: A share is no number in its range, or `group` no str.
        WatcherUnavailable: There is no such group, or it does not tell what it uses; or the machine does not: on macOS.

    Example:
        >>> from batchlimit.errors import WatcherUnavailable
        >>> from batchlimit.watchers import ProcessorWatcher
        >>> try:
        ...     watchers = [ProcessorWatcher(0.9)]
        ... except WatcherUnavailable:
        ...     watchers = []
    """

    __slots__ = ("_clock", "_groups", "_stat", "_threshold", "name")

    def __init__(
        self,
        threshold: float = 0.9,
        *,
        low: float | None = None,
        group: str | None = None,
        root: Path = ROOT,
        proc: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = "processors" if group is None else f"processors {group}"
        self._threshold = ShareThreshold(threshold, low)
        self._clock, self._stat = clock, proc / "stat"
        quotas = groups_of("cpu", group, root, proc)
        usages = groups_of("cpuacct", group, root, proc) if quotas and quotas[0].version == 1 else quotas
        # From the root, since their paths may differ in depth; none without a quota, unless it was named.
        pairs = zip(reversed(usages), reversed(quotas), strict=False)
        told = [(usage, quota) for usage, quota in pairs if used_by(usage) is not None]
        self._groups = [each for each in told if group is not None or quota_of(each[1]) is not None]
        if group is not None and not self._groups:
            raise WatcherUnavailable(f"the control group {usages[0].path} does not tell what it uses of the processors")
        if not self._stat.is_file():
            raise WatcherUnavailable(f"no {self._stat} tells what the processors do: this needs Linux")

    def __repr__(self) -> str:
        where = ", ".join(f"{usage.path}" for usage, _quota in self._groups) or "the machine"
        return f"<ProcessorWatcher of {where}: {self._threshold!r}>"

    def poll(self) -> str | None:
        """Return a reason to back off if too much was used since the last poll."""
        now, lines, seen = self._clock(), self._stat.read_text().splitlines(), dict[str, Counted]()
        count = sum(line.startswith("cpu") for line in lines) - 1
        for usage, quota in self._groups:
            if (used := used_by(usage)) is None:
                raise FileNotFoundError(f"the control group {usage.path} is gone")
            seen[str(usage.path)] = Counted(used, now, quota_of(quota) or count)
        times = [int(each) for each in lines[0].split()[1 : 1 + _COUNTED]]
        machine = Counted(sum(times) - sum(times[each] for each in _IDLE), sum(times))
        worst = self._threshold.worst(seen or {"the machine": machine})
        return None if worst is None else f"{worst[0]:.2f} of the processors of {worst[1]} in use"
