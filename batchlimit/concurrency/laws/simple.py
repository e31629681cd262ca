"""Simple laws: a fixed limit, one that rises by one and falls by a ratio, and laws that heed the watchers."""

import math
from collections.abc import Callable, Sequence

from batchlimit.base import setting
from batchlimit.concurrency.law import CountingLaw, Law, Sample, WrappingLaw


class Fixed(CountingLaw):
    """The same limit for ever.

    Args:
        limit: How many calls may be under way (whole number, at least 1).

    Raises:
        TypeError, ValueError: `limit` is no whole number from 1.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Fixed
        >>> with ConcurrencyLimiter(Fixed(20)) as limiter:
        ...     limiter.limit
        20
    """

    __slots__ = ()

    def __init__(self, limit: int) -> None:
        self._limit = setting.whole("a limit (calls)", limit, most=math.inf)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._limit})"


class Settable(Fixed):
    """The limit that the application set last, from any thread.

    Args:
        limit: How many calls may be under way at first (whole number, at least 1).

    Raises:
        TypeError, ValueError: As Fixed.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Settable
        >>> law = Settable(20)
        >>> with ConcurrencyLimiter(law) as limiter:
        ...     law.set_limit(30)
        ...     limiter.limit
        30
    """

    __slots__ = ("_listeners",)

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._listeners: list[Callable[[], object]] = []

    def set_limit(self, limit: int) -> None:
        """Set the limit from now on. Waiters for whom there is room now are served.

        Args:
            limit: How many calls may be under way (whole number, at least 1).

        Raises:
            TypeError, ValueError: As Fixed.
        """
        self._limit = setting.whole("a limit (calls)", limit, most=math.inf)
        for changed in self._listeners:
            changed()

    def listen(self, changed: Callable[[], object]) -> None:
        """Register a function to be called each time the limit was set, in the thread that set it.

        Args:
            changed: The function.
        """
        self._listeners.append(changed)


class AIMD(CountingLaw):
    """Additive increase, multiplicative decrease, a step for each sample: AIMDLimit of Netflix's concurrency-limits.

    With L the limit: a drop, or a call that took longer than `timeout`, makes it L x backoff_ratio, rounded down. Any
    other call makes it L + 1, if at least half of the limit was in use. The result is held within the bounds. Set a
    timeout of a few times what a call takes, and well below what callers wait. The default's worst case is best for
    calls of 50 ms to 1 s; the original has 5 s. Of many limiters before one backend, set `minimum` to 1 in each.

    Args:
        initial: The first limit (calls, default 20). Out of bounds, it stands until the first sample.
        minimum: The least limit (calls, default 20).
        maximum: The largest limit (calls, default 200).
        backoff_ratio: What a drop leaves of the limit (from 0.5 to below 1, default 0.9).
        timeout: How long a call may take (seconds, default 1.0).

    Raises:
        TypeError, ValueError: An argument is no number in its range.

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import AIMD
        >>> law = AIMD(initial=100, timeout=0.5)
        >>> law.update(Sample(0, 600_000_000, 100))  # 0.6 s
        90
    """

    __slots__ = ("_backoff_ratio", "_maximum", "_minimum", "_timeout_ns")

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

    def update(self, sample: Sample) -> int:
        """Take one step; the bounds hold after every sample."""
        limit = self._limit
        if sample.dropped or sample.rtt_ns > self._timeout_ns:
            limit = int(limit * self._backoff_ratio)
        elif 2 * sample.in_flight >= limit:
            limit += 1
        self._limit = min(self._maximum, max(self._minimum, limit))
        return self._limit


class Gitaly(CountingLaw):
    """Up by one call each period, down by a factor if a watcher saw a reason: the limit calculator of Gitaly.

    Samples change nothing: the limit also rises where nobody uses it. From 15 to 100 takes 85 periods.

    Args:
        initial: The first limit (calls, within the bounds, default 15).
        minimum: The least limit (calls, default 5).
        maximum: The largest limit (calls, default 100).
        factor: What a reason to back off leaves of the limit, rounded down (above 0, below 1, default 0.5).

    Raises:
        TypeError, ValueError: An argument is no number in its range.

    Example:
        >>> from batchlimit.laws import Gitaly
        >>> law = Gitaly(initial=20)
        >>> law.calibrate([], now_ns=0), law.calibrate(["memory 0.95"], now_ns=0)
        (21, 10)
    """

    __slots__ = ("_factor", "_maximum", "_minimum")

    def __init__(self, *, initial: int = 15, minimum: int = 5, maximum: int = 100, factor: float = 0.5) -> None:
        self._minimum, self._maximum = setting.bounds(minimum, maximum)
        self._limit = setting.whole("initial", initial)
        if not self._minimum <= initial <= self._maximum:
            raise ValueError(f"initial must be from minimum to maximum, {minimum} to {maximum}, not {initial}")
        self._factor = setting.between("factor", factor, 0.0, 1.0, "()")

    def __repr__(self) -> str:
        return f"<Gitaly {self._limit} of {self._minimum}..{self._maximum}>"

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        """Take one step for a period: one decrease, however many reasons there were, or one increase for none."""
        if events:
            self._limit = max(self._minimum, int(self._limit * self._factor))
        else:
            self._limit = min(self._maximum, self._limit + 1)
        return self._limit


class Watched(WrappingLaw):
    """Turns a period in which watchers saw a reason to back off into one dropped call for `law`.

    The law gets the last call once more, as a dropped one; a period without a reason changes nothing. What a drop does
    is up to the law: AIMD falls by its ratio, Windowed and Periodic count it in the window or period under way,
    Gradient2 ignores it. A limiter with watchers wraps its law by itself, unless the law is Calibrated.

    Args:
        law: The law that gets the drops.

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import AIMD, Watched
        >>> law = Watched(AIMD(initial=100, timeout=5))
        >>> law.update(Sample(0, 10_000_000, 100)), law.calibrate(["memory 0.95"], now_ns=0)
        (101, 90)
    """

    __slots__ = ("_last",)

    def __init__(self, law: Law) -> None:
        super().__init__(law)
        self._last: Sample | None = None

    def update(self, sample: Sample) -> int:
        """Pass the call on, and remember it."""
        self._last = sample
        return self.law.update(sample)

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        """Tell the law of one drop, if there was any reason to back off."""
        if events and self._last is not None:
            return self.law.update(self._last._replace(dropped=True))
        return self.law.limit
