"""Whether tasks stand still for lack of a resource: pressure stall information (PSI), since Linux 4.20.

From the kernel's accounting/psi: a file has a line `some` (at least one task stood still) and a line `full` (all of
them did). Each has averages and a `total`: the microseconds that passed so.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from batchlimit.concurrency.watchers.cgroup import PROC, ROOT, Membership, named
from batchlimit.concurrency.watchers.watcher import of_shares
from batchlimit.errors import WatcherUnavailable

Resource = Literal["cpu", "memory", "io"]
Kind = Literal["some", "full"]


class PressureWatcher:
    """Tells when tasks stood still for too large a share of the time since the last poll.

    The tasks are those of the control group of this process; where it has no such file, those of the machine.

    It takes the difference of `total` over its own window: the kernel's averages reach back over other windows than the
    period between two polls.

    Args:
        resource: "cpu", "memory" or "io".
        kind: "some" (default): at least one task stood still; "full": all of them did.
        threshold: From this share of the time on it is an event (above 0, at most 1, default 0.5).
        low: An event lasts until the share falls below this (None, the default: `threshold`).
        group: The path of another control group below the mount, such as "gitaly/repos-7" of version 2 (default
            None: the groups of this process).
        root: Where the trees of control groups are mounted (default /sys/fs/cgroup).
        proc: Where processes are (default /proc).
        clock: Returns seconds (default `time.monotonic`).

    Raises:
        TypeError: A share is no number.
        ValueError: A share is out of its range, or there is no such resource or kind.
        WatcherUnavailable: There is no such group, or no such file can be read: on macOS, or with PSI off.

    Example:
        >>> from batchlimit.errors import WatcherUnavailable
        >>> from batchlimit.watchers import PressureWatcher
        >>> try:
        ...     watchers = [PressureWatcher("memory", "some", 0.2)]
        ... except WatcherUnavailable:
        ...     watchers = []
    """

    __slots__ = ("_before", "_clock", "_file", "_kind", "_threshold", "name")

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
        self._threshold = of_shares(threshold, low)
        self._clock = clock
        self._kind = kind
        self._before: tuple[float, float] | None = None
        self._file = _readable(resource, kind, group, root, proc)

    def __repr__(self) -> str:
        return f"<PressureWatcher of {self._kind!r} in {self._file}: {self._threshold!r}>"

    def poll(self) -> str | None:
        """Return a reason to back off if tasks stood still for too long since the last poll."""
        now = self._clock(), _stalled(self._file, self._kind)
        before, self._before = self._before, now
        if before is None or now[0] <= before[0]:
            return None
        seconds = now[0] - before[0]
        share = (now[1] - before[1]) / seconds  # less than 0, so no event, where the totals began anew
        return f"{self.name} for {share:.2f} of {seconds:.1f} s" if self._threshold.update(share) else None


def _readable(resource: Resource, kind: Kind, group: str | None, root: Path, proc: Path) -> Path:
    """Return the file nearest to this process that tells; or that of the group."""
    for file in _files(resource, group, root, proc):
        try:
            _stalled(file, kind)
        except (OSError, KeyError):  # PSI may be off for a group alone, and old kernels know no `full` for cpu
            continue
        return file
    if group is not None:
        raise WatcherUnavailable(f"the control group {group!r} under {root} does not tell {kind!r} pressure")
    raise WatcherUnavailable(f"neither the control group nor {proc}/pressure/{resource} tells {kind!r} pressure")


def _files(resource: Resource, group: str | None, root: Path, proc: Path) -> list[Path]:
    if group is not None:
        return [named(group, "", root).path / f"{resource}.pressure"]
    ours = Membership(root, proc).unified()[:1]
    return [*(each.path / f"{resource}.pressure" for each in ours), proc / "pressure" / resource]


def _stalled(file: Path, kind: Kind) -> float:
    """Return for how many seconds tasks have stood still so far; the files count microseconds."""
    totals: dict[str, float] = {}
    for line in file.read_text().splitlines():
        each, *pairs = line.split()
        totals[each] = int(dict(pair.split("=") for pair in pairs)["total"]) / 1e6
    return totals[kind]
