"""One step of a law a period: what a loop that looks at its observations every few seconds decides."""

from collections.abc import Callable, Sequence

from batchlimit.concurrency.law import Law, Sample
from batchlimit.concurrency.laws import setting
from batchlimit.concurrency.laws.observed import Observed, is_true
from batchlimit.concurrency.laws.window import percentile


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


class Periodic:
    """Keeps the last observations and takes one decision a period, as Klaviyo's query service does around its AIMD.

    A period begins where its first call ends, and lasts `every` seconds. The first call that ends after it brings the
    decision and opens the next period. So nothing is decided while nothing happens, and no timer is needed. The law
    gets one sample: the statistic of the last rtts, the most calls in flight in the period, and a drop if any call
    of the period was dropped. One timeout in a hundred calls would not show in a p95; as a drop it does.

    The last calls may be of several periods: at a low rate, a slow spell is felt for long. Around AIMD the limit falls
    once a period, for a drop or for a p95 above its timeout, and rises by one only where half of it was in use.

    A call of negative duration, or one over 104 days, is left out.

    Args:
        law: The law that decides.
        every: The length of a period (seconds, default 3.0).
        statistic: A function of the rtts (ns), such as `statistics.median` or `max` (default `p95`).
        last: How many calls the statistic is about (default 1000).

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is out of its range.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import AIMD, Periodic
        >>> with ConcurrencyLimiter(Periodic(AIMD(initial=20, timeout=0.5))) as limiter:
        ...     limiter.limit
        20
    """

    __slots__ = ("_ends_ns", "_every_ns", "_law", "_observed", "_statistic")

    def __init__(
        self,
        law: Law,
        *,
        every: float = 3.0,
        statistic: Callable[[Sequence[int]], float] = p95,
        last: int = 1000,
    ) -> None:
        self._law = law
        self._every_ns = setting.nanoseconds("every", every, 1e-9)
        self._statistic = setting.function("statistic", statistic)
        self._observed = Observed(setting.whole("last", last))
        self._ends_ns: int | None = None

    def __repr__(self) -> str:
        return f"<Periodic {self._law!r}: {len(self._observed.rtts_ns)} observations>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._law.limit

    @property
    def law(self) -> Law:
        """The law that decides once a period."""
        return self._law

    def update(self, sample: Sample) -> int:
        """Decide, if a period is over; then count the call."""
        if is_true(sample):
            end = sample.start_ns + sample.rtt_ns
            if self._ends_ns is None or end >= self._ends_ns:
                self._decide()
                self._ends_ns = end + self._every_ns
            self._observed.add(sample)
        return self._law.limit

    def _decide(self) -> None:
        if self._observed.rtts_ns:
            self._law.update(self._observed.take(self._statistic))
