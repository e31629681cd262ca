"""When to end calls that are under way already, and how many."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchlimit.base.setting import between, function, of_kind, whole

if TYPE_CHECKING:
    from batchlimit.concurrency.locked_gate import LockedGate


def youngest_of_the_least(call: Any) -> Any:
    """Order by priority, and within a priority the youngest first: the least work is lost."""
    return call.priority, -call.start_ns


@dataclass(frozen=True, slots=True)
class Shedding:
    """Ends calls that are under way, when overload lasts: by the watchers, or by what is under way.

    A lower limit does not end the calls under way, which may be what the memory is full of. Each period from `after` or
    `over` on ends a share of the calls admitted with `sheddable=True`, at least one; by `over` alone, no more than are
    above the limit.

    Args:
        after: How many periods in a row with reasons to back off it takes (whole number, default 3).
        share: Which share of the sheddable calls to end in a period (above 0, at most 1; default 0.1).
        key: Returns the sort key of a call, which has `operation`, `priority` and `start_ns`; the smallest are ended
            first (default: the lowest priority, and of the same priority the youngest).
        over: How many periods in a row must end above the limit (whole number; None, the default: that is no reason).
            Calls told to give up do not count, those of soft shares do. It needs no watchers.

    Raises:
        TypeError, ValueError: An argument is of the wrong type, or out of its range.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.concurrency import Shedding
        >>> from batchlimit.watchers import LatencyWatcher
        >>> shedding = Shedding(after=2, share=0.25)
        >>> limiter = ConcurrencyLimiter(watchers=[LatencyWatcher(0.5)], every=5.0, shedding=shedding)
        >>> with limiter.acquire(priority=1, sheddable=True) as permit:
        ...     permit.check()  # raises ConcurrencyLimited if this call is to give up
        >>> limiter.close()
    """

    after: int = 3
    share: float = 0.1
    key: Callable[[Any], Any] = youngest_of_the_least
    over: int | None = None

    def __post_init__(self) -> None:
        whole("after (periods)", self.after, most=math.inf)
        whole("over (periods)", 1 if self.over is None else self.over, most=math.inf)
        between("share", self.share, 1e-6, 1.0, "[]")
        function("key", self.key)


def check_shedding(shedding: Shedding | None, watchers: object) -> None:
    """Raise TypeError for what is no Shedding, ValueError for one that would never end a call."""
    of_kind("shedding", shedding, Shedding | None, "like Shedding(after=3)")
    if shedding is not None and not watchers and shedding.over is None:
        raise ValueError("shedding needs watchers, whose reasons to back off persist, or Shedding(over=3)")


class Shedder:
    """Counts the periods of overload, and chooses the calls to end."""

    __slots__ = ("_over", "_periods", "shedding")

    def __init__(self, shedding: Shedding) -> None:
        self.shedding = shedding
        self._periods = self._over = 0

    def end_period(self, events: Sequence[str], *gates: "LockedGate") -> None:
        """Count the period that is over, and end calls if overload lasts: of all these gates together."""
        seen = [each.excess() for each in gates]
        excess = sum(max(0, above) for above, _calls in seen)
        calls = [call for _above, calls in seen for call in calls]
        for call in self.choose(events, excess, calls):  # without a lock: its key is the user's
            call._shed()

    def choose(self, events: Sequence[str], excess: int, calls: Sequence[Any]) -> list[Any]:
        """Return the sheddable calls that are to end now: a period is over, in which so much was seen and in excess."""
        self._periods = self._periods + 1 if events else 0
        self._over = self._over + 1 if excess > 0 else 0
        is_by_watchers = self._periods >= self.shedding.after
        is_over_for_long = self.shedding.over is not None and self._over >= self.shedding.over
        if not is_by_watchers and not is_over_for_long:
            return []
        # In millionths, as the shares of partitions: 0.07 of 100 calls are 7, and not ceil(7.000000000000001).
        most = -(-len(calls) * round(self.shedding.share * 1_000_000) // 1_000_000)
        return sorted(calls, key=self.shedding.key)[: most if is_by_watchers else min(most, excess)]
