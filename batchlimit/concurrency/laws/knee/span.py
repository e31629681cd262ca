"""What is gathered of calls that ended before a law decides: a span of time that is long enough to tell something."""

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws.setting import LONGEST_NS

_FOR_EVER = 10**30
"""ns: later than any clock shows."""
_KEPT = 2048
"""rtts that are kept of a span: more make the median no truer."""
_NAMES = 64
"""Operations that are held apart; one too many, as when someone puts an id in the name, counts as unnamed."""
_ENOUGH = ((40, 0), (8, 3 * 10**9), (2, 10 * 10**9), (1, 60 * 10**9))
"""How many calls end a span that is so many ns old: many calls a short one, few calls a long one."""


class Span:
    """Calls that ended since the last decision. None is thrown away: no rate is too low to decide at all.

    Instants and durations are in ns. A span is open for at least as long as the law says, a few round trips: what the
    last decision changed has to show.
    """

    __slots__ = ("_due", "_names", "_since", "begin", "busy", "count", "dropped", "end", "peak", "times")

    def __init__(self, least: int) -> None:
        self._names = {""}
        self.restart(_FOR_EVER, least)

    def __repr__(self) -> str:
        return f"<Span: {self.count} calls, {self.dropped} dropped, at most {self.peak} at once>"

    @property
    def length(self) -> int:
        """How long it took, at least 1 ns."""
        return max(1, self.end - self.begin)

    @property
    def concurrency(self) -> float:
        """How many calls were under way on average: the time that they took, over the time that passed."""
        return self.busy / self.length

    def restart(self, now: int, least: int, since: int = -_FOR_EVER) -> None:
        """Begin anew, for at least so long; calls that were admitted before `since` are not counted."""
        self.begin = self.end = now
        self._due, self._since = now + least, since
        self.count = self.dropped = self.busy = self.peak = 0
        self.times: dict[str, list[int]] = {}

    def add(self, sample: Sample) -> bool:
        """Count a call that ended; return whether that is enough to decide."""
        start, rtt, in_flight, dropped, operation = sample
        end = start + rtt
        if start >= self._since:
            self.count += 1
            if in_flight > self.peak:
                self.peak = in_flight
            if dropped:
                self.dropped += 1
            # A time that cannot be is none; how long it took a call to fail says nothing of those that succeed.
            if 0 < rtt <= LONGEST_NS:
                self.busy += rtt
                if not dropped and self.count <= _KEPT:
                    try:
                        self.times[operation].append(rtt)
                    except KeyError:
                        self._meet(operation, rtt)
        if self.begin <= end < self._due:
            return False
        return self._is_over(start, end)

    def _meet(self, operation: str, rtt: int) -> None:
        if operation not in self._names:
            operation = operation if len(self._names) < _NAMES else ""
            self._names.add(operation)
        self.times.setdefault(operation, []).append(rtt)

    def _is_over(self, start: int, end: int) -> bool:
        if end < self.begin:
            # The first call of all; or the clock stepped back, or a call had claimed to be of the future.
            self._due += start - self.begin
            self.begin = start
            self._since = min(self._since, end)
        self.end = end
        age = end - self.begin
        return end >= self._due and any(self.count >= calls and age >= least for calls, least in _ENOUGH)
