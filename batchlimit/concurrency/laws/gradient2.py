"""Gradient2: the limit follows how the latest rtt compares with the long average."""

import math
from collections.abc import Callable

from batchlimit.concurrency.law import Sample, single
from batchlimit.concurrency.laws import setting


class Average:
    """The mean of the first `warmup` values, then an exponential average of about the last `window`.

    After the warm-up a value v counts f = 2 / (window + 1): average x (1 - f) + v x f.
    """

    __slots__ = ("_count", "_factor", "_sum", "_warmup", "value")

    def __init__(self, window: int, warmup: int) -> None:
        self.value = self._sum = 0.0
        self._count = 0
        self._warmup = warmup
        self._factor = 2.0 / (window + 1)

    def __repr__(self) -> str:
        return f"<Average {self.value:.1f}>"

    def add(self, value: float) -> float:
        """Return the average with `value` in it."""
        if self._count < self._warmup:
            self._count += 1
            self._sum += value
            self.value = self._sum / self._count
        else:
            self.value = self.value * (1 - self._factor) + value * self._factor
        return self.value


class Gradient2:
    """Shrinks while calls are slower than usual, else grows by a queue: Gradient2Limit of Netflix's concurrency-limits.

    With L the estimate (the limit before rounding down), and long the average rtt of the first `warmup` samples and
    then of about the last `long_window`:

        gradient = tolerance x long / rtt, held between 0.5 and 1
        L = L x (1 - smoothing) + (L x gradient + queue_size) x smoothing, held within the bounds

    only if at least half of L was in use. Where long is over twice the rtt, 5 % are taken off it, so that a spell of
    load is forgotten sooner; during the warm-up the next sample undoes that.

    Quirks of the original that stay: drops say nothing to it, only durations do. Under a load that lasts, the average
    follows the slow rtt, and the limit drifts up to `maximum`: choose one that the service survives. An `initial` out
    of bounds stands until the first step. A sample without a duration (0 or less, or over 104 days) is ignored.

    Args:
        initial: The first limit (calls, default 20).
        minimum: The least limit (calls, default 20).
        maximum: The largest limit (calls, default 200).
        smoothing: The weight of a new result (above 0, at most 1, default 0.2).
        queue_size: How many calls may queue (calls, default 4), or a function of the whole limit.
        long_window: How many samples the long average is about (default 600).
        warmup: How many samples it is the plain mean of at first (default 10).
        tolerance: How many times as long as usual calls may take (at least 1, default 1.5).

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is out of its range.

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import Gradient2
        >>> law = Gradient2(initial=50)
        >>> [law.update(Sample(0, 10_000_000, 50)) for _ in range(3)]
        [50, 51, 52]
    """

    __slots__ = ("_estimate", "_keep", "_long", "_maximum", "_minimum", "_queue_size", "_smoothing", "_tolerance")

    def __init__(
        self,
        *,
        initial: int = 20,
        minimum: int = 20,
        maximum: int = 200,
        smoothing: float = 0.2,
        queue_size: int | Callable[[int], float] = 4,
        long_window: int = 600,
        warmup: int = 10,
        tolerance: float = 1.5,
    ) -> None:
        self._estimate = float(setting.whole("initial", initial))
        low, high = setting.bounds(minimum, maximum)
        self._minimum, self._maximum = float(low), float(high)
        self._smoothing = setting.between("smoothing", smoothing, 0.0, 1.0, "(]")
        self._keep = 1 - self._smoothing
        self._queue_size = setting.by_limit("queue_size", queue_size)
        self._long = Average(setting.whole("long_window", long_window), setting.whole("warmup", warmup))
        self._tolerance = setting.between("tolerance", tolerance, 1.0, math.inf, "[)")

    def __repr__(self) -> str:
        return f"<Gradient2 {self._estimate:.2f}: {self._long.value:.0f} ns on average>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return int(self._estimate)

    @property
    def estimated_limit(self) -> float:
        """The limit before it is rounded down."""
        return self._estimate

    @property
    def long_rtt_ns(self) -> float:
        """The average rtt (ns); 0 before the first sample."""
        return self._long.value

    @property
    def baselines(self) -> dict[str, float]:
        """The time of calls averaged over long, under "" (s); empty before the first call."""
        return single(self._long.value)

    def update(self, sample: Sample) -> int:
        """Take one step; the average learns also where the limit stays."""
        rtt = sample.rtt_ns
        if 0 < rtt <= setting.LONGEST_NS:
            long = self._long.add(rtt)
            if long / rtt > 2:
                self._long.value *= 0.95
            if sample.in_flight >= self._estimate / 2:
                self._step(long, rtt)
        return int(self._estimate)

    def _step(self, long: float, rtt: int) -> None:
        estimate = self._estimate
        gradient = max(0.5, min(1.0, self._tolerance * long / rtt))
        wanted = estimate * gradient + self._queue_size(int(estimate))
        blended = estimate * self._keep + wanted * self._smoothing
        self._estimate = max(self._minimum, min(self._maximum, blended))
