"""One step of a law for many calls: every few seconds, or for every so many of them."""

from collections import deque
from collections.abc import Callable, Sequence

from batchlimit.base import setting
from batchlimit.concurrency.law import Law, Sample, WrappingLaw
from batchlimit.concurrency.laws.windowed import percentile


def p95(rtts_ns: Sequence[int]) -> int:
    """Return the duration that 95 % of the calls did not exceed.

    Args:
        rtts_ns: The durations of the calls (ns), at least one.

    Returns:
        The duration (ns).

    Example:
        >>> from batchlimit.laws import p95
        >>> p95(range(1, 101))
        95
    """
    return percentile(rtts_ns, 0.95)


class ObservingLaw(WrappingLaw):
    """Tells `law` of many calls by one sample: a statistic of the `last` rtts."""

    __slots__ = ("_dropped", "_ends_ns", "_in_flight", "_rtts_ns", "_start_ns", "_statistic")

    def __init__(self, law: Law, statistic: Callable[[Sequence[int]], float], last: int | None = None) -> None:
        super().__init__(law)
        self._statistic = setting.function("statistic", statistic)
        self._rtts_ns: deque[int] = deque(maxlen=last)
        self._start_ns = self._in_flight = self._ends_ns = 0
        self._dropped = False

    def _observe(self, sample: Sample) -> None:
        self._rtts_ns.append(sample.rtt_ns)
        self._start_ns = sample.start_ns
        self._in_flight = max(self._in_flight, sample.in_flight)
        self._dropped = self._dropped or sample.dropped

    def _decide(self, *, keep: bool) -> None:
        """Update the law; the next sample is of later drops and calls in flight, and of these rtts too if they stay."""
        rtt = int(self._statistic(tuple(self._rtts_ns)))
        sample = Sample(self._start_ns, rtt, self._in_flight, self._dropped)
        self._in_flight, self._dropped = 0, False
        if not keep:
            self._rtts_ns.clear()
        self.law.update(sample)


class Periodic(ObservingLaw):
    """Keeps the last observations and takes one decision a period, as Klaviyo's query service does around its AIMD.

    A period begins where its first call ends, and lasts `every` seconds. The first call that ends after it brings the
    decision and opens the next period; no timer is needed. The law gets one sample: the statistic of the last rtts, the
    most calls in flight in the period, and a drop if any call of the period was dropped, which would not show in a p95.

    The last calls may be of several periods: at a low rate, a slow spell is felt for long. Around AIMD the limit falls
    once a period, for a drop or for a p95 above its timeout, and rises by one only where half of it was in use. A call
    of negative duration, or one over 104 days, is left out.

    Args:
        law: The law that decides.
        every: The length of a period (seconds, default 3.0).
        statistic: A function of the rtts (ns), such as `statistics.median` or `max` (default `p95`).
        last: How many calls the statistic is about (default 1000).

    Raises:
        TypeError, ValueError: An argument is of the wrong type, or out of its range.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import AIMD, Periodic
        >>> with ConcurrencyLimiter(Periodic(AIMD(initial=20, timeout=0.5))) as limiter:
        ...     limiter.limit
        20
    """

    __slots__ = ("_every_ns",)

    def __init__(
        self, law: Law, *, every: float = 3.0, statistic: Callable[[Sequence[int]], float] = p95, last: int = 1000
    ) -> None:
        super().__init__(law, statistic, setting.whole("last", last))
        self._every_ns = setting.nanoseconds("every", every, 1e-9)

    def __repr__(self) -> str:
        return f"<Periodic {self.law!r}: {len(self._rtts_ns)} observations>"

    def update(self, sample: Sample) -> int:
        """Decide, if a period is over; then count the call."""
        if 0 <= sample.rtt_ns <= setting.LONGEST_NS:
            end = sample.start_ns + sample.rtt_ns
            if not self._rtts_ns or end >= self._ends_ns:
                if self._rtts_ns:
                    self._decide(keep=True)
                self._ends_ns = end + self._every_ns
            self._observe(sample)
        return self.law.limit


class Tumbling(ObservingLaw):
    """Takes one decision every `calls` calls, or every `every` seconds if that is sooner.

    The call that fills a window counts in it, and brings the decision. The first call that ends after the time of a
    window brings it too, and opens the next one. The law gets one sample: the start of the window's last call, the
    statistic of its rtts, the most calls in flight, and a drop if any was dropped. So the law takes as many steps per
    call at 10 calls a second as at 10,000. A call of negative duration, or one over 104 days, is left out.

    Args:
        law: The law that decides.
        calls: How many calls fill a window (at least 1, default 100).
        every: After how long a window ends that was not filled (seconds; None, the default: not before it is full).
        statistic: A function of the rtts (ns), such as `statistics.median` or `max` (default `p95`).

    Raises:
        TypeError, ValueError: An argument is of the wrong type, or out of its range.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import AIMD, Tumbling
        >>> with ConcurrencyLimiter(Tumbling(AIMD(initial=20, timeout=0.5), calls=2000, every=1.0)) as limiter:
        ...     limiter.limit
        20
    """

    __slots__ = ("_calls", "_every_ns")

    def __init__(
        self,
        law: Law,
        *,
        calls: int = 100,
        every: float | None = None,
        statistic: Callable[[Sequence[int]], float] = p95,
    ) -> None:
        super().__init__(law, statistic)
        self._calls = setting.whole("calls", calls)
        self._every_ns = None if every is None else setting.nanoseconds("every", every, 1e-9)

    def __repr__(self) -> str:
        return f"<Tumbling {self.law!r}: {len(self._rtts_ns)} of {self._calls} calls>"

    def update(self, sample: Sample) -> int:
        """Decide, if the time of a window is over; count the call; decide, if it fills a window."""
        if 0 <= sample.rtt_ns <= setting.LONGEST_NS:
            if self._every_ns is not None:
                end = sample.start_ns + sample.rtt_ns
                if self._rtts_ns and end >= self._ends_ns:
                    self._decide(keep=False)
                if not self._rtts_ns:
                    self._ends_ns = end + self._every_ns
            self._observe(sample)
            if len(self._rtts_ns) >= self._calls:
                self._decide(keep=False)
        return self.law.limit
