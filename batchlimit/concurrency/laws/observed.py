"""The calls behind one sample of a law: all in a window, or the last so many."""

from collections import deque
from collections.abc import Callable, Sequence

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import setting


class Observed:
    """The rtts of calls that are over, and of those since the last sample the most in flight and whether any dropped.

    Args:
        last: How many rtts are kept (None, the default: all).
    """

    __slots__ = ("_dropped", "_in_flight", "_start_ns", "rtts_ns")

    def __init__(self, last: int | None = None) -> None:
        self.rtts_ns: deque[int] = deque(maxlen=last)
        self._start_ns = self._in_flight = 0
        self._dropped = False

    def __repr__(self) -> str:
        return f"<Observed {len(self.rtts_ns)} calls>"

    def add(self, sample: Sample) -> None:
        """Count a call."""
        self.rtts_ns.append(sample.rtt_ns)
        self._start_ns = sample.start_ns
        self._in_flight = max(self._in_flight, sample.in_flight)
        self._dropped = self._dropped or sample.dropped

    def take(self, statistic: Callable[[Sequence[int]], float]) -> Sample:
        """Return one sample for all calls; the next one is about later drops and calls in flight. The rtts stay."""
        rtt = int(statistic(tuple(self.rtts_ns)))
        sample = Sample(self._start_ns, rtt, self._in_flight, self._dropped)
        self._in_flight, self._dropped = 0, False
        return sample


def is_true(sample: Sample) -> bool:
    """Whether a call has a duration that can be: neither negative nor over 104 days."""
    return 0 <= sample.rtt_ns <= setting.LONGEST_NS
