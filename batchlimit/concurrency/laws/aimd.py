"""AIMD: up by one call while calls go well, down by a ratio when one fails."""

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import setting


class AIMD:
    """Additive increase, multiplicative decrease, a step for each sample: AIMDLimit of Netflix's concurrency-limits.

    With L the limit: a drop, or a call that took longer than `timeout` seconds, makes it L x backoff_ratio, rounded
    down. Any other makes it L + 1, if at least half of the limit was in use. Then it is held within the bounds.

    Bounds and `initial` are in calls; `backoff_ratio` is from 0.5 to less than 1. An `initial` out of bounds stands
    until the first sample, as in the original. Short of its timeout it has no notion of a slow call: give a timeout
    that is, or wrap it in Periodic.
    """

    __slots__ = ("_backoff_ratio", "_limit", "_maximum", "_minimum", "_timeout_ns")

    def __init__(
        self,
        *,
        initial: int = 20,
        minimum: int = 20,
        maximum: int = 200,
        backoff_ratio: float = 0.9,
        timeout: float = 5.0,
    ) -> None:
        self._limit = setting.whole("initial", initial)
        self._minimum, self._maximum = setting.bounds(minimum, maximum)
        self._backoff_ratio = setting.between("backoff_ratio", backoff_ratio, 0.5, 1.0, "[)")
        self._timeout_ns = setting.nanoseconds("timeout", timeout, 1e-9)

    def __repr__(self) -> str:
        return f"<AIMD {self._limit} of {self._minimum}..{self._maximum}>"

    @property
    def limit(self) -> int:
        return self._limit

    def update(self, sample: Sample) -> int:
        """Take one step; the bounds hold after every sample, also after one that says nothing."""
        limit = self._limit
        if sample.dropped or sample.rtt_ns > self._timeout_ns:
            limit = int(limit * self._backoff_ratio)
        elif 2 * sample.in_flight >= limit:
            limit += 1
        self._limit = min(self._maximum, max(self._minimum, limit))
        return self._limit
