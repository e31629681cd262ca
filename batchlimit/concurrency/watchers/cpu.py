"""Whether this process is held back for having used its share of the processors."""

from dataclasses import dataclass
from pathlib import Path

from batchlimit.concurrency.watchers.cgroup import PROC, ROOT, Group, groups_of
from batchlimit.concurrency.watchers.threshold import of_shares
from batchlimit.errors import WatcherUnavailable


@dataclass(frozen=True, slots=True)
class Throttling:
    """What a group's `cpu.stat` counts."""

    periods: int
    """In how many periods of its quota it wanted to run."""
    throttled: int
    """In how many of them it used the quota up, and was held back."""
    seconds: float
    """How long it was held back, summed over processors."""

    @property
    def share(self) -> float:
        """In which share of the periods it was held back; from 0 to 1, however many processors there are."""
        return self.throttled / self.periods

    def since(self, before: "Throttling") -> "Throttling | None":
        """Return what came since then; None where nothing did, or where the counts began anew."""
        periods, throttled = self.periods - before.periods, self.throttled - before.throttled
        if periods <= 0 or throttled < 0:
            return None
        return Throttling(periods, throttled, self.seconds - before.seconds)


def throttling_of(group: Group) -> Throttling | None:
    """Return what a group counts; None where it counts nothing, because processors are not controlled there."""
    told = group.table("cpu.stat") if group.has("cpu.stat") else {}
    if "nr_periods" not in told:
        return None
    # Version 1 counts nanoseconds, version 2 microseconds.
    seconds = told["throttled_time"] / 1e9 if group.version == 1 else told["throttled_usec"] / 1e6
    return Throttling(told["nr_periods"], told["nr_throttled"], seconds)


class ThrottlingWatcher:
    """Sees that the kernel held a group of this process back, in a share of the periods since the last poll.

    It counts periods, not time: time is summed over processors, and passes 1 with many of them. Any group on the way to
    the root may be the one with the quota; the one that is worst off counts. Without a quota nothing is ever held back.

    Args:
        threshold: From this share of periods on it is an event (above 0, at most 1, default 0.5).
        low: An event lasts until the share falls below this (None, the default: `threshold`).
        group: The path of another control group below the mount, such as "gitaly/repos-7", which counts alone (default
            None: the groups of this process).
        root: Where the trees of control groups are mounted (default /sys/fs/cgroup).
        proc: Where processes are (default /proc).

    Raises:
        TypeError: A share is no number.
        ValueError: A share is out of its range.
        WatcherUnavailable: There is no such group, or it counts no periods: on macOS, or without the cpu controller.

    Example:
        >>> from batchlimit.errors import WatcherUnavailable
        >>> from batchlimit.watchers import ThrottlingWatcher
        >>> try:
        ...     watchers = [ThrottlingWatcher(0.3)]
        ... except WatcherUnavailable:
        ...     watchers = []
    """

    __slots__ = ("_before", "_groups", "_threshold", "name")

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
        self._threshold = of_shares(threshold, low)
        self._groups = tuple(each for each in groups_of("cpu", group, root, proc) if throttling_of(each) is not None)
        self._before: dict[Group, Throttling] = {}
        if not self._groups:
            whose = "of this process" if group is None else repr(group)
            raise WatcherUnavailable(f"no control group {whose} under {root} counts periods in its cpu.stat")

    def __repr__(self) -> str:
        return f"<ThrottlingWatcher of {self._groups[0].path}: {self._threshold!r}>"

    def poll(self) -> str | None:
        """Return a reason to back off if groups were held back too often since the last poll."""
        news = [each for each in map(self._news, self._groups) if each is not None]
        if not news:
            self._threshold.forget()
            return None
        worst = max(news, key=lambda throttling: throttling.share)
        if not self._threshold.update(worst.share):
            return None
        return f"cpu throttled in {worst.share:.2f} of {worst.periods} periods, for {worst.seconds:.1f} s"

    def _news(self, group: Group) -> Throttling | None:
        now = throttling_of(group)
        if now is None:
            return None
        before, self._before[group] = self._before.get(group, now), now
        return now.since(before)
