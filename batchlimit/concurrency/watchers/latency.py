"""Whether calls take longer than they may."""

from batchlimit.concurrency.watchers.threshold import checked_seconds, checked_share

_WHOLE = 1_000_000
"""What a percentile is counted in: as a whole number, 0.95 of 20 calls are 19, and not a hair more."""


class LatencyWatcher:
    """Sees that a percentile of the calls since the last poll took longer than a target.

    The limiter tells it of each call by `observe`, one at a time. It needs no more memory than two counts: the
    percentile is over the target exactly if fewer calls than that share kept it. The counts only grow, and a poll
    takes the difference, so `observe` needs no lock of ours; a call that ends during a poll counts now or next time.
    A period without calls tells nothing; in one with few of them, a single slow call is enough.
    """

    __slots__ = ("_before", "_calls", "_millionths", "_slow", "_target_ns", "percentile", "target")

    name = "latency"

    def __init__(self, target: float = 0.5, percentile: float = 0.95) -> None:
        self.target = checked_seconds("target", target)
        self.percentile = checked_share("percentile", percentile)
        self._target_ns = self.target * 1e9
        self._millionths = round(self.percentile * _WHOLE)
        self._calls = self._slow = 0
        self._before = (0, 0)

    def __repr__(self) -> str:
        return f"<LatencyWatcher: {self._slow} of {self._calls} calls took over {self.target:g} s>"

    def observe(self, rtt_ns: int) -> None:
        """Hear how long a call took, in ns."""
        if rtt_ns > self._target_ns:
            self._slow += 1
        self._calls += 1

    def poll(self) -> str | None:
        # The slow ones first: read the other way round, one that ends just now would be slow, and no call.
        slow, calls = self._slow, self._calls
        before, self._before = self._before, (slow, calls)
        slow, calls = slow - before[0], calls - before[1]
        if (calls - slow) * _WHOLE >= self._millionths * calls:
            return None
        return f"latency: {slow} of {calls} calls took over {self.target:g} s, {1 - self.percentile:.2g} may"
