"""AIMD: up by one call while calls go well, down by a ratio when one fails."""

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import setting


class AIMD:
    """Additive increase, multiplicative decrease, a step for each sample: AIMDLimit of Netflix's concurrency-limits.

    With L the limit: a drop, or a call that took longer than `timeout`, makes it L x backoff_ratio, rounded down. Any
    other call makes it L + 1, if at least half of the limit was in use. The result is held within the bounds. A call
    that stays within the timeout never counts as slow, and an ordinary call over it counts each time. Set a timeout of
    a few times what a call takes, and well below what callers wait. The default is the one whose worst case was best
    for calls of 50 ms to 1 s; the original's is 5 s. Of many limiters before one backend, each needs a least limit of
    its share or less: set `minimum` to 1.

    Args:
        initial: The first limit (calls, default 20). Out of bounds, it stands until the first sample.
        minimum: The least limit (calls, default 20).
        maximum: The largest limit (calls, default 200).
        backoff_ratio: What a drop leaves of the limit (from 0.5 to below 1, default 0.9).
        timeout: How long a call may take (seconds, default 1.0).

    Raises:
        TypeError: An argument is no number.
        ValueError: An argument is out of its range.

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import AIMD
        >>> law = AIMD(initial=100, timeout=0.5)
        >>> law.update(Sample(0, 600_000_000, 100))  # 0.6 s
        90
    """

    __slots__ = ("_backoff_ratio", "_limit", "_maximum", "_minimum", "_timeout_ns")

    def __init__(
        self,
        *,
        initial: int = 20,
        minimum: int = 20,
        maximum: int = 200,
        backoff_ratio: float = 0.9,
        timeout: float = 1.0,
    ) -> None:
        self._limit = setting.whole("initial", initial)
        self._minimum, self._maximum = setting.bounds(minimum, maximum)
        self._backoff_ratio = setting.between("backoff_ratio", backoff_ratio, 0.5, 1.0, "[)")
        self._timeout_ns = setting.nanoseconds("timeout", timeout, 1e-9)

    def __repr__(self) -> str:
        return f"<AIMD {self._limit} of {self._minimum}..{self._maximum}>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._limit

    def update(self, sample: Sample) -> int:
        """Take one step; the bounds hold after every sample."""
        limit = self._limit
        if sample.dropped or sample.rtt_ns > self._timeout_ns:
            limit = int(limit * self._backoff_ratio)
        elif 2 * sample.in_flight >= limit:
            limit += 1
        self._limit = min(self._maximum, max(self._minimum, limit))
        return self._limit
