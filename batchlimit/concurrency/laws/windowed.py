"""One step of a law for many calls, so that no single call moves the limit."""

from batchlimit.concurrency.law import Law, Sample
from batchlimit.concurrency.laws import setting
from batchlimit.concurrency.laws.window import AverageWindow, Window


class Windowed:
    """Tells `law` of one sample a window: WindowedLimit of Netflix's concurrency-limits.

    A window lasts twice its least rtt, held between `min_window` and `max_window`. The first call that ends after that
    still counts in it and closes it. The law then gets one sample: the start of that call, the rtt that stands for
    the window, the most calls in flight, and whether any call was dropped.

    Two quirks of the original stay, since recorded runs show them. A window of fewer than `window_size` calls is thrown
    away, so below 10 calls in a window nothing ever moves. And the first call closes, and so wastes, a window of its
    own.

    Args:
        law: The law that decides.
        window: How a window is summarised (None, the default: AverageWindow()).
        window_size: How many calls a window needs to count (at least 10, default 10).
        min_window: How long a window lasts at least (seconds, at least 0.1, default 1.0).
        max_window: How long it lasts at most (seconds, at least 0.1, default 1.0).
        min_rtt: Shorter calls are left out, dropped ones too (seconds, default 100e-6).

    Raises:
        TypeError: An argument is no number.
        ValueError: An argument is out of its range, or the window holds fewer than `window_size` and would never count.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Vegas, Windowed
        >>> with ConcurrencyLimiter(Windowed(Vegas(initial=30))) as limiter:
        ...     limiter.limit
        30
    """

    __slots__ = (
        "_law",
        "_max_window_ns",
        "_min_rtt_ns",
        "_min_window_ns",
        "_next_update_ns",
        "_window",
        "_window_size",
    )

    def __init__(
        self,
        law: Law,
        *,
        window: Window | None = None,
        window_size: int = 10,
        min_window: float = 1.0,
        max_window: float = 1.0,
        min_rtt: float = 100e-6,
    ) -> None:
        self._law = law
        self._window = AverageWindow() if window is None else window
        self._window_size = setting.whole("window_size", window_size, least=10)
        if self._window.capacity is not None and self._window.capacity < self._window_size:
            raise ValueError(f"a window that holds {self._window.capacity} is never of {self._window_size}: {window!r}")
        self._min_window_ns = setting.nanoseconds("min_window", min_window, 0.1)
        self._max_window_ns = setting.nanoseconds("max_window", max_window, 0.1)
        if self._min_window_ns > self._max_window_ns:
            raise ValueError(f"min_window must not be above max_window, but {min_window!r} > {max_window!r}")
        self._min_rtt_ns = setting.nanoseconds("min_rtt", min_rtt, 0.0)
        self._next_update_ns = 0

    def __repr__(self) -> str:
        return f"<Windowed {self._law!r}: {self._window!r}>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._law.limit

    @property
    def law(self) -> Law:
        """The law that gets one sample a window."""
        return self._law

    def update(self, sample: Sample) -> int:
        """Count the call; update the law if it closes a window that is large enough."""
        if sample.rtt_ns >= self._min_rtt_ns:
            self._window.add(sample)
            end = sample.start_ns + sample.rtt_ns
            if end > self._next_update_ns:
                self._close(sample.start_ns, end)
        return self._law.limit

    def _close(self, start: int, end: int) -> None:
        seen = self._window.take()
        lasts = min(max(2 * seen.shortest_ns, self._min_window_ns), self._max_window_ns)
        self._next_update_ns = end + lasts
        if seen.calls >= self._window_size:
            self._law.update(Sample(start, seen.rtt_ns, seen.in_flight, seen.dropped))
