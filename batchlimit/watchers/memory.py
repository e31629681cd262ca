"""Whether memory runs out."""

from pathlib import Path

from batchlimit.errors import WatcherUnavailable
from batchlimit.watchers.argument import checked_share
from batchlimit.watchers.cgroup import PROC, ROOT, Membership
from batchlimit.watchers.threshold import Threshold
from batchlimit.watchers.usage import USED, Usage, of_group, of_machine

_RELIEF = 0.95
"""How far below the threshold memory must fall before all is well, unless told: use trembles with each collection of
garbage, by more than the kernel's own counts do (it batches them: 64 pages for each processor)."""


class MemoryWatcher:
    """Sees that memory is used up to a share of its limit, or that it ran out since the last poll.

    The limit is the tightest on the way from this process's control group to the root, `memory.high` included. Where
    none has a limit below what the machine has, the machine's own memory counts. It is an event from `threshold` on,
    until use falls below `low` (a twentieth less, unless told). So is a lack of memory: one that lasts (version 1 tells
    so), or one that was met by killing. Reaching the limit alone is none: a group that reads many files does so all the
    time.

    Raises WatcherUnavailable where neither control groups nor the machine tell their use: on macOS, for one.
    """

    __slots__ = ("_groups", "_proc", "_shortages", "_threshold")

    name = "memory"

    def __init__(
        self, threshold: float = 0.9, *, low: float | None = None, root: Path = ROOT, proc: Path = PROC
    ) -> None:
        high = checked_share("threshold", threshold)
        self._threshold = Threshold(high, _RELIEF * high if low is None else checked_share("low", low))
        self._groups = tuple(each for each in Membership(root, proc).of("memory") if each.has(USED[each.version]))
        self._proc = proc
        self._shortages: int | None = None
        if not self._groups and of_machine(proc) is None:
            raise WatcherUnavailable(f"no control group under {root} and no {proc}/meminfo tell the use of memory")

    def __repr__(self) -> str:
        where = self._groups[0].path if self._groups else self._proc / "meminfo"
        return f"<MemoryWatcher of {where}: {self._threshold!r}>"

    def poll(self) -> str | None:
        # Both are asked each time: each remembers what it saw.
        ran_out = self._ran_out()
        usage = self._tightest()
        full = usage is not None and self._threshold.update(usage.share)
        if ran_out:
            return f"memory ran out, now {usage}" if usage is not None else "memory ran out"
        return f"memory {usage}" if full else None

    def _tightest(self) -> Usage | None:
        machine = of_machine(self._proc)
        usages = [each for each in map(of_group, self._groups) if each is not None]
        if machine is not None:
            usages = [each for each in usages if each.limit < machine.limit] or [machine]
        return max(usages, key=lambda usage: usage.share, default=None)

    def _ran_out(self) -> bool:
        """Whether there is a lack, or was one since the last poll; the first knows of no earlier one."""
        if not self._groups:
            return False
        own = self._groups[0]  # the others count what befell groups beside ours, too
        told = own.table("memory.oom_control" if own.version == 1 else "memory.events")
        before, self._shortages = self._shortages, told.get("oom", 0) + told.get("oom_kill", 0)
        return told.get("under_oom", 0) > 0 or (before is not None and self._shortages > before)
