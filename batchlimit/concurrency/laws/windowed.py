"""One step of a law for many calls, so that no single call moves the limit."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from batchlimit.base import setting
from batchlimit.concurrency.law import Law, Sample, WrappingLaw


class Summary(NamedTuple):
    """A window that is over; at least one call was in it.

    Attributes:
        calls: How many calls it is about.
        shortest_ns: The least rtt (ns).
        rtt_ns: The rtt that stands for all (ns).
        in_flight: The most calls that were under way at once.
        dropped: Whether load made any of them fail.

    Example:
        >>> from batchlimit.laws import Summary
        >>> Summary(calls=2, shortest_ns=5, rtt_ns=7, in_flight=3, dropped=False).rtt_ns
        7
    """

    calls: int
    shortest_ns: int
    rtt_ns: int
    in_flight: int
    dropped: bool


class Window(Protocol):
    """Samples go in, a summary comes out. A window belongs to one law.

    Example:
        >>> from batchlimit.laws import AverageWindow, Window
        >>> window: Window = AverageWindow()
    """

    @property
    def capacity(self) -> int | None:
        """How many samples fit; None: any number."""

    def add(self, sample: Sample) -> None:
        """Take in a call that is over.

        Args:
            sample: The call.
        """

    def take(self) -> Summary:
        """Summarise what was added since the last summary, at least one sample, and begin anew.

        Returns:
            The summary.
        """


class AverageWindow:
    """A window whose mean stands for all its calls, in whole ns, rounded down. Dropped calls count in it.

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import AverageWindow
        >>> window = AverageWindow()
        >>> for rtt in (1_000_000, 3_000_000):
        ...     window.add(Sample(0, rtt, 1))
        >>> window.take().rtt_ns
        2000000
    """

    __slots__ = ("_count", "_dropped", "_in_flight", "_shortest_ns", "_sum_ns")

    capacity = None

    def __init__(self) -> None:
        self._count = self._sum_ns = self._shortest_ns = self._in_flight = 0
        self._dropped = False

    def __repr__(self) -> str:
        return f"<AverageWindow of {self._count}>"

    def add(self, sample: Sample) -> None:
        """Take in a call that is over."""
        rtt = sample.rtt_ns
        if not self._count or rtt < self._shortest_ns:
            self._shortest_ns = rtt
        self._count += 1
        self._sum_ns += rtt
        self._in_flight = max(self._in_flight, sample.in_flight)
        self._dropped = self._dropped or sample.dropped

    def take(self) -> Summary:
        """Summarise the calls, and begin anew."""
        mean = self._sum_ns // self._count
        summary = Summary(self._count, self._shortest_ns, mean, self._in_flight, self._dropped)
        self._count = self._sum_ns = self._shortest_ns = self._in_flight = 0
        self._dropped = False
        return summary


class PercentileWindow:
    """A window in which the rtt at `part` of its first calls stands for all.

    Calls beyond the capacity are left out, their drops and calls in flight included, as in the original.

    Args:
        part: Which part of the calls took no longer (above 0, below 1; 0.5: the median).
        capacity: How many calls fit.

    Raises:
        TypeError, ValueError: An argument is no number in its range.

    Example:
        >>> from batchlimit.laws import Gradient2, PercentileWindow, Windowed
        >>> Windowed(Gradient2(), window=PercentileWindow(0.9, capacity=1000)).limit
        20
    """

    __slots__ = ("_dropped", "_in_flight", "_part", "_rtts_ns", "capacity")

    def __init__(self, part: float, capacity: int) -> None:
        self._part = setting.between("part", part, 0.0, 1.0, "()")
        self.capacity = setting.whole("capacity", capacity)
        self._rtts_ns: list[int] = []
        self._in_flight, self._dropped = 0, False

    def __repr__(self) -> str:
        return f"<PercentileWindow of {len(self._rtts_ns)}: p{100 * self._part:g}>"

    def add(self, sample: Sample) -> None:
        """Take in a call that is over."""
        if len(self._rtts_ns) < self.capacity:
            self._rtts_ns.append(sample.rtt_ns)
            self._in_flight = max(self._in_flight, sample.in_flight)
            self._dropped = self._dropped or sample.dropped

    def take(self) -> Summary:
        """Summarise the calls, and begin anew."""
        rtts = self._rtts_ns
        summary = Summary(len(rtts), min(rtts), percentile(rtts, self._part), self._in_flight, self._dropped)
        self._rtts_ns, self._in_flight, self._dropped = [], 0, False
        return summary


def percentile(values: Sequence[int], part: float) -> int:
    """Return the value that ranks n x part among n, rounded to the nearest rank, halves up."""
    rank = math.floor(len(values) * part + 0.5)
    return sorted(values)[max(1, rank) - 1]  # where the original of the windows raises for a rank of 0


class Windowed(WrappingLaw):
    """Tells `law` of one sample a window: WindowedLimit of Netflix's concurrency-limits.

    A window lasts twice its least rtt, held between `min_window` and `max_window`. The first call that ends after that
    still counts in it and closes it. The law then gets one sample: the start of that call, the rtt that stands for
    the window, the most calls in flight, and whether any call was dropped. Two quirks of the original stay: a window of
    fewer than `window_size` calls is thrown away, and the first call closes, and so wastes, a window of its own.

    Args:
        law: The law that decides.
        window: How a window is summarised (None, the default: AverageWindow()).
        window_size: How many calls a window needs to count (at least 10, default 10).
        min_window: How long a window lasts at least (seconds, at least 0.1, default 1.0).
        max_window: How long it lasts at most (seconds, at least 0.1, default 1.0).
        min_rtt: Shorter calls are left out, dropped ones too (seconds, default 100e-6).

    Raises:
        TypeError, ValueError: An argument is no number in its range, or the window holds fewer than `window_size`.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Vegas, Windowed
        >>> with ConcurrencyLimiter(Windowed(Vegas(initial=30))) as limiter:
        ...     limiter.limit
        30
    """

    __slots__ = (
        "_max_window_ns", "_min_rtt_ns", "_min_window_ns", "_next_update_ns", "_window", "_window_size",
    )  # fmt: skip

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
        super().__init__(law)
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
        return f"<Windowed {self.law!r}: {self._window!r}>"

    def update(self, sample: Sample) -> int:
        """Count the call; update the law if it closes a window that is large enough."""
        if sample.rtt_ns >= self._min_rtt_ns:
            self._window.add(sample)
            end = sample.start_ns + sample.rtt_ns
            if end > self._next_update_ns:
                seen = self._window.take()
                lasts = min(max(2 * seen.shortest_ns, self._min_window_ns), self._max_window_ns)
                self._next_update_ns = end + lasts
                if seen.calls >= self._window_size:
                    self.law.update(Sample(sample.start_ns, seen.rtt_ns, seen.in_flight, seen.dropped))
        return self.law.limit
