"""Whether calls take longer than they may."""

from batchlimit.concurrency.watchers.threshold import checked_seconds, checked_share

_WHOLE = 1_000_000
"""What a percentile is counted in: as a whole number, 0.95 of 20 calls are 19, and not a hair more."""


class LatencyWatcher:
    """Sees that a percentile of the calls since the last poll took longer than a target.

    The limiter tells it of each call by `observe`, one at a time. A period without calls tells nothing. In a period of
    few calls, a single slow one is enough.

    Args:
        target: How long calls may take (seconds, default 0.5).
        percentile: Which share of the calls has to keep the target (above 0, at most 1, default 0.95).

    Raises:
        TypeError: An argument is no number.
        ValueError: An argument is out of its range.

    Example:
        >>> from batchlimit.watchers import LatencyWatcher
        >>> watcher = LatencyWatcher(target=0.5)
        >>> watcher.observe(700_000_000)
        >>> watcher.poll()
        'latency: 1 of 1 calls took over 0.5 s, 0.05 may'
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
        """Count a call that ended.

        Args:
            rtt_ns: How long it took (ns).
        """
        if rtt_ns > self._target_ns:
            self._slow += 1
        self._calls += 1

    def poll(self) -> str | None:
        # The slow ones first: read the other way round, one that ends just now would be slow, and no call.
        """Return a reason to back off if too many calls since the last poll were slow."""
        slow, calls = self._slow, self._calls
        before, self._before = self._before, (slow, calls)
        slow, calls = slow - before[0], calls - before[1]
        if (calls - slow) * _WHOLE >= self._millionths * calls:
            return None
        return f"latency: {slow} of {calls} calls took over {self.target:g} s, {1 - self.percentile:.2g} may"
