"""What is gathered of calls that ended before a law decides: a span of time, as long as it takes to tell something."""

from batchlimit.core.sample import Sample

_LONGEST_RTT = 86_400 * 10**9
"""ns. A call that took longer than a day, or less than nothing, was timed by a broken clock."""
_KEPT = 2048
"""rtts that are kept of a span: more make the median no truer."""
_OPERATIONS = 64
"""Names of operations that are held apart; a name too many, as when someone puts an id in it, counts as unnamed."""
_ENOUGH = ((40, 0), (8, 3 * 10**9), (2, 10 * 10**9), (1, 60 * 10**9))
"""How many calls end a span that is so many ns old: many calls in a short one, or few in a long one, never none."""


class Span:
    """Calls that ended since the last decision. Nothing is thrown away, so that no rate is too low to decide at all.

    Instants and durations in ns. A span is open for at least `least`, which the law sets to a few round trips: what
    the last decision changed has to show.
    """

    __slots__ = ("_due", "_since", "begin", "busy", "count", "dropped", "end", "names", "peak", "times")

    def __init__(self) -> None:
        self.names: set[str] = {""}
        self.begin = self.end = self._due = self._since = 0
        self.restart(10**30, 200_000_000)

    def __repr__(self) -> str:
        return f"<Span: {self.count} calls, {self.dropped} dropped, at most {self.peak} at once>"

    def restart(self, now: int, least: int, since: int = -(10**30)) -> None:
        """Begin anew; calls that were admitted before `since` are not counted."""
        self.begin = self.end = now
        self._due, self._since = now + least, since
        self.count = self.dropped = self.busy = self.peak = 0
        self.times: dict[str, list[int]] = {}

    def add(self, sample: Sample) -> bool:
        """Count a call that ended; return whether that is enough to decide."""
        start, rtt, in_flight, dropped, operation = sample
        if not 0 <= rtt <= _LONGEST_RTT:
            rtt = max(0, min(rtt, _LONGEST_RTT))
        end = start + rtt
        if start >= self._since:
            self.count += 1
            self.busy += rtt
            if in_flight > self.peak:
                self.peak = in_flight
            if dropped:
                self.dropped += 1
            elif self.count <= _KEPT:
                try:
                    self.times[operation].append(rtt)
                except KeyError:
                    self._name(operation, rtt)
        if self.begin <= end < self._due:
            return False
        return self._is_over(start, end)

    def _name(self, operation: str, rtt: int) -> None:
        if operation not in self.names:
            if len(self.names) > _OPERATIONS:
                operation = ""
            self.names.add(operation)
        self.times.setdefault(operation, []).append(rtt)

    def _is_over(self, start: int, end: int) -> bool:
        if end < self.begin:
            # The first call; or the clock stepped back, or a call had claimed to be of the future: count from here.
            self._due += start - self.begin
            self.begin = start
        self.end = end
        age = end - self.begin
        return end >= self._due and any(self.count >= calls and age >= least for calls, least in _ENOUGH)
