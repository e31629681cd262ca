"""What each key may have under way at once, and what is counted of it."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from batchlimit.base.histogram import Histogram
from batchlimit.base.redaction import shown
from batchlimit.base.setting import of_kind
from batchlimit.concurrency.law import Calibrated, Law, Sample, WrappingLaw, baselines_of
from batchlimit.concurrency.laws.simple import Fixed
from batchlimit.concurrency.partition import Partitions
from batchlimit.concurrency.queue import NO_QUEUE, Queue
from batchlimit.concurrency.shedding import Shedding, check_shedding
from batchlimit.concurrency.statistics import ENDED, PartitionStatistics, WatcherStatistics
from batchlimit.concurrency.watchers.watcher import Watcher

T = TypeVar("T")
MakeLaw = Callable[[], Law]
MakeWatchers = Callable[[str], Iterable[Watcher]]


@dataclass(frozen=True, slots=True)
class Keyed:
    """The limit of each key that a pattern names.

    Args:
        limit: How many calls of one key may be under way (whole number, at least 1). Or what makes its law, such as
            `Knee` or `lambda: AIMD(minimum=1)`; a limiter without watchers makes one more, to see whether it works.
        queue: Where the calls of one key wait that find no room (default: nobody waits).
        shared: True if all keys of the pattern teach one law, for keys with too few calls to learn from (default False:
            each key has its own). A key takes over the limit when one of its calls ends.
        watchers: Makes the watchers of a key, such as those of its control group; what they see moves the limit of
            this key alone (default None: none). While it raises WatcherUnavailable, it is asked again each period.
        partitions: Guarantees parts of the limit of each key by name (default None: no parts).
        shedding: When to end calls of one key, by its `watchers` or by `over` (default None: never). That of the
            limiter ends calls of all keys.

    Raises:
        TypeError, ValueError: An argument is of the wrong type, `limit` is below 1, a law that keys share has watchers
            of one key, or `shedding` has no watchers.

    Example:
        >>> from batchlimit import Queue
        >>> from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter
        >>> limiter = KeyedConcurrencyLimiter({"repo:*": Keyed(20, queue=Queue(50)), "*": 5})
        >>> with limiter.acquire("repo:42", timeout=0.1):
        ...     limiter.statistics().patterns["repo:*"].in_flight
        1
        >>> limiter.close()
    """

    limit: int | MakeLaw
    queue: Queue = NO_QUEUE
    shared: bool = False
    watchers: MakeWatchers | None = None
    partitions: Partitions | None = None
    shedding: Shedding | None = None

    def __post_init__(self) -> None:
        limit: object = self.limit
        if not callable(limit):
            if isinstance(limit, bool) or not isinstance(limit, int):
                hint = ": give a function that makes one" if isinstance(limit, Law) else ""
                raise TypeError(f"the limit of a key is a whole number, or makes a law, not {shown(limit)}{hint}")
            Fixed(limit)
        of_kind("queue", self.queue, Queue, "like Queue(100)")
        of_kind("watchers", self.watchers, Callable | None, "a function of a key")
        if self.watchers is not None and (self.shared or isinstance(self.limit, int)):
            raise ValueError("watchers of a key move the law of this key: neither a number nor a law that keys share")
        of_kind("partitions", self.partitions, Partitions | None, 'like Partitions({"live": 0.5})')
        check_shedding(self.shedding, self.watchers)


@dataclass(frozen=True, slots=True, eq=False)
class KeyPattern:
    """One entry of the limits."""

    name: str  # The name or pattern
    number: int  # Where it stands among the limits. Several keys are acquired in this order.
    keyed: Keyed  # What each of its keys gets


class SharedLaw(WrappingLaw):
    """One law behind several gates. A sample that interrupts its work is left out: see `_alone`."""

    __slots__ = ("_is_busy", "_lock")

    def __init__(self, law: Law) -> None:
        super().__init__(law)
        self.after_fork()

    def after_fork(self) -> None:
        """Forget who holds the lock: a thread of the parent may have."""
        self._lock, self._is_busy = threading.RLock(), False

    @property
    def baselines(self) -> Mapping[str, float]:
        """How long calls take without a queue, as the law holds; none if this thread interrupted its work."""
        return self._alone(lambda: baselines_of(self.law), dict)

    def update(self, sample: Sample) -> int:
        return self._alone(lambda: self.law.update(sample), lambda: self.law.limit)

    def end_period(self, events: Sequence[str], now_ns: int) -> None:
        """Learn what the watchers saw, once for all keys; each gate takes over the limit by `calibrate`."""
        law = self.law
        if isinstance(law, Calibrated):
            self._alone(lambda: law.calibrate(events, now_ns), lambda: law.limit)

    def calibrate(self, _events: Sequence[str], _now_ns: int) -> int:
        """Return the limit, which `end_period` may have changed."""
        return self.limit

    def _alone(self, work: Callable[[], T], interrupting: Callable[[], T]) -> T:
        """Let the law work, unless the garbage collector completes a permit in the thread in which it does already."""
        with self._lock:
            if self._is_busy:
                return interrupting()
            self._is_busy = True
            try:
                return work()
            finally:
                self._is_busy = False


@dataclass(frozen=True, slots=True)
class PatternStatistics:
    """All keys of one pattern together; all in calls, but for `keys`.

    Attributes:
        keys: How many keys are in memory now (default 0).
        ignored: Calls that are over and that no law was told of, the abandoned ones included, and what `acquire_all`
            gave back because another key had no room (default 0).
        in_flight, waiting, succeeded, dropped, abandoned, bypassed, unknown, waits: As of ConcurrencyStatistics
            (default: nothing was counted).
        shed: Calls under way that were told to give up (default 0).
        refused: Refusals by reason; see ConcurrencyLimited for the reasons (default: none).
        baselines: As of ConcurrencyStatistics, of the keys in memory the longest (default: unknown).

    Example:
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> with KeyedConcurrencyLimiter({"repo:*": 2, "*": 1}) as limiter:
        ...     limiter.acquire("repo:42").success()
        ...     limiter.statistics().patterns["repo:*"].succeeded
        1
    """

    keys: int = 0
    in_flight: int = 0
    waiting: int = 0
    succeeded: int = 0
    dropped: int = 0
    ignored: int = 0
    abandoned: int = 0
    bypassed: int = 0
    shed: int = 0
    unknown: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    waits: Histogram = field(default=Histogram(), compare=False)
    baselines: Mapping[str, float] = field(default_factory=dict)

    def plus(self, other: "PatternStatistics") -> "PatternStatistics":
        """Return the sum of two.

        Args:
            other: The other one.

        Returns:
            The sum.
        """
        counted = "keys", "in_flight", "waiting", *ENDED
        kinds = self.baselines.keys() | other.baselines.keys()
        return PatternStatistics(
            **{each: getattr(self, each) + getattr(other, each) for each in counted},
            refused=Counter(self.refused) + Counter(other.refused),
            waits=self.waits.plus(other.waits),
            baselines={each: max(self.baselines.get(each, 0.0), other.baselines.get(each, 0.0)) for each in kinds},
        )


@dataclass(frozen=True, slots=True)
class KeyStatistics:
    """One key now; see `busiest`.

    Attributes:
        key: The key.
        pattern: The name or pattern that it got its limit from.
        limit: How many of its calls may be under way now.
        in_flight: How many of its calls are under way now.
        waiting: How many callers wait now.
        baselines: How long its calls take without a queue, by operation or under "" (seconds; default: unknown).
        partitions: Its partitions by name; "" is that of calls under no name that has a share (default: none).

    Example:
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> with KeyedConcurrencyLimiter({"repo:*": 2}) as limiter, limiter.acquire("repo:42"):
        ...     limiter.busiest()
        [KeyStatistics(key='repo:42', pattern='repo:*', limit=2, in_flight=1, waiting=0, baselines={}, partitions={})]
    """

    key: str
    pattern: str
    limit: int
    in_flight: int
    waiting: int
    baselines: Mapping[str, float] = field(default_factory=dict)
    partitions: Mapping[str, PartitionStatistics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyedStatistics:
    """A keyed concurrency limiter now, and what it counted since it was made.

    Attributes:
        patterns: What all keys of a pattern did, by the name or pattern in the limits.
        watchers: The watchers, as they were given; last "keys", those of all `Keyed`, if any (default: none).

    Example:
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> with KeyedConcurrencyLimiter({"*": 2}) as limiter:
        ...     limiter.statistics().patterns["*"].keys
        0
    """

    patterns: Mapping[str, PatternStatistics]
    watchers: tuple[WatcherStatistics, ...] = ()
