"""One step of a law for so many calls: windows that follow one another, and end by count or by time."""

from collections.abc import Callable, Sequence

from batchlimit.concurrency.law import Law, Sample
from batchlimit.concurrency.laws import setting
from batchlimit.concurrency.laws.observed import Observed, is_true
from batchlimit.concurrency.laws.periodic import p95


class Tumbling:
    """Takes one decision every `calls` calls, or every `every` seconds if that is sooner.

    Each call counts in one window alone. The call that fills a window counts in it, and brings the decision. The first
    call that ends after the time of a window brings it too, and opens the next window. The law gets one sample: the
    start of the last call of the window, the statistic of its rtts, the most calls in flight, and a drop if any call
    was dropped. So the law takes as many steps per call at 10 calls a second as at 10,000. With `every`, no window is
    older than that when it is decided upon.

    A call of negative duration, or one over 104 days, is left out.

    Args:
        law: The law that decides.
        calls: How many calls fill a window (at least 1, default 100).
        every: After how long a window ends that was not filled (seconds; None, the default: not before it is full).
        statistic: A function of the rtts (ns), such as `statistics.median` or `max` (default `p95`).

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is out of its range.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import AIMD, Tumbling
        >>> with ConcurrencyLimiter(Tumbling(AIMD(initial=20, timeout=0.5), calls=2000, every=1.0)) as limiter:
        ...     limiter.limit
        20
    """

    __slots__ = ("_calls", "_ends_ns", "_every_ns", "_law", "_observed", "_statistic")

    def __init__(
        self,
        law: Law,
        *,
        calls: int = 100,
        every: float | None = None,
        statistic: Callable[[Sequence[int]], float] = p95,
    ) -> None:
        self._law = law
        self._calls = setting.whole("calls", calls)
        self._every_ns = None if every is None else setting.nanoseconds("every", every, 1e-9)
        self._statistic = setting.function("statistic", statistic)
        self._observed = Observed()
        self._ends_ns = 0

    def __repr__(self) -> str:
        return f"<Tumbling {self._law!r}: {len(self._observed.rtts_ns)} of {self._calls} calls>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._law.limit

    @property
    def law(self) -> Law:
        """The law that decides once a window."""
        return self._law

    def update(self, sample: Sample) -> int:
        """Decide, if the time of a window is over; count the call; decide, if it fills a window."""
        if is_true(sample):
            self._begin(sample.start_ns + sample.rtt_ns)
            self._observed.add(sample)
            if len(self._observed.rtts_ns) >= self._calls:
                self._decide()
        return self._law.limit

    def _begin(self, end_ns: int) -> None:
        """End a window whose time is over; open one if none is."""
        if self._every_ns is None:
            return
        if self._observed.rtts_ns and end_ns >= self._ends_ns:
            self._decide()
        if not self._observed.rtts_ns:
            self._ends_ns = end_ns + self._every_ns

    def _decide(self) -> None:
        sample = self._observed.take(self._statistic)
        self._observed.rtts_ns.clear()
        self._law.update(sample)
