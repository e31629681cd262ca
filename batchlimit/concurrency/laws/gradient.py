"""Limits that follow how the latest rtt compares with the least (Gradient), or with the long average (Gradient2)."""

import math
from collections.abc import Callable

from batchlimit.base import setting
from batchlimit.concurrency.law import EstimatingLaw, Sample


def square_root(limit: int) -> int:
    """Return the square root of a limit, rounded down, at least 4: the default queue of Gradient.

    Args:
        limit: The limit (calls).

    Returns:
        The root (calls).

    Example:
        >>> from batchlimit.laws import square_root
        >>> square_root(10), square_root(100)
        (4, 10)
    """
    return max(4, math.isqrt(limit))


class Gradient(EstimatingLaw):
    """Shrinks while calls are slower than the fastest, else grows by a queue: GradientLimit of Netflix, the older one.

    With L the estimate (the limit before rounding down), q = queue_size(L), and noload the least rtt since the last
    probe: gradient = tolerance x noload / rtt, held between 0.5 and 1. A drop wants L x backoff_ratio. Any other sample
    wants L x gradient + q, if at least half of L was in use. A result below L is blended, L x (1 - smoothing) + new x
    smoothing, and held to `minimum`. Growth goes at once. Then q <= L <= maximum.

    After every probe_interval x (1 + jitter) samples, the next one is a probe. It forgets the noload and sets L to q,
    or to `minimum` if that is more. So the next noload is not that of a loaded server.

    Quirks of the original that stay: after a step the floor is q, even where `minimum` or `maximum` are below it; an
    `initial` out of bounds stands until the first step. A sample without a duration (0 or less, or over 104 days) is
    ignored.

    Args:
        initial: The first limit (calls, default 50).
        minimum: The least limit (calls, default 1).
        maximum: The largest limit (calls, default 1000).
        smoothing: The weight of a lower result (above 0, at most 1, default 0.2).
        queue_size: How many calls may queue (calls), or a function of the whole limit (default `square_root`).
        tolerance: How many times as long as the noload calls may take (at least 1, default 2.0).
        backoff_ratio: What a drop leaves of L (0.5 to 1, default 0.9).
        probe_interval: Samples between two probes (default 1000); None: no probes.
        jitter: Returns a number in [0, 1) at first and at each probe. A random one keeps processes from probing in step
            (default: always 0.5, since a law draws no random numbers).

    Raises:
        TypeError, ValueError: An argument is of the wrong type, or out of its range.

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import Gradient
        >>> law = Gradient(initial=50)
        >>> law.update(Sample(0, 10_000_000, 50)), law.update(Sample(0, 60_000_000, 57))
        (57, 52)
    """

    __slots__ = (
        "_backoff_ratio", "_countdown", "_jitter", "_probe_interval", "_queue_size", "_tolerance",
    )  # fmt: skip

    def __init__(
        self,
        *,
        initial: int = 50,
        minimum: int = 1,
        maximum: int = 1000,
        smoothing: float = 0.2,
        queue_size: int | Callable[[int], float] = square_root,
        tolerance: float = 2.0,
        backoff_ratio: float = 0.9,
        probe_interval: int | None = 1000,
        jitter: Callable[[], float] = lambda: 0.5,
    ) -> None:
        super().__init__(initial, minimum, maximum, smoothing)
        self._queue_size = setting.by_limit("queue_size", queue_size)
        self._tolerance = setting.between("tolerance", tolerance, 1.0, math.inf, "[)")
        self._backoff_ratio = setting.between("backoff_ratio", backoff_ratio, 0.5, 1.0, "[]")
        self._probe_interval = None if probe_interval is None else setting.whole("probe_interval", probe_interval)
        self._jitter = setting.function("jitter", jitter)
        self._countdown = self._next_countdown()

    def __repr__(self) -> str:
        return f"<Gradient {self._estimate:.2f}: {self._noload_ns} ns at no load, {self._countdown} until the probe>"

    @property
    def rtt_noload_ns(self) -> int:
        """The least rtt since the last probe (ns); 0 if there was none yet."""
        return int(self._noload_ns)

    @property
    def probe_countdown(self) -> int | None:
        """How many samples there will be until the next probe; None if it never probes."""
        return self._countdown

    def update(self, sample: Sample) -> int:
        """Take one step, or probe instead."""
        if 0 < sample.rtt_ns <= setting.LONGEST_NS:
            queue = float(self._queue_size(int(self._estimate)))
            if self._countdown is not None:
                self._countdown -= 1
            if self._countdown is not None and self._countdown < 0:
                self._countdown, self._noload_ns = self._next_countdown(), 0
                self._estimate = max(self._minimum, queue)
            else:
                self._step(sample, queue)
        return int(self._estimate)

    def _next_countdown(self) -> int | None:
        interval = self._probe_interval
        return None if interval is None else interval + int(self._jitter() * interval)

    def _step(self, sample: Sample, queue: float) -> None:
        rtt, estimate = sample.rtt_ns, self._estimate
        self._noload_ns = min(self._noload_ns or rtt, rtt)
        if sample.dropped:
            wanted = estimate * self._backoff_ratio
        elif sample.in_flight < estimate / 2:
            return
        else:
            wanted = estimate * max(0.5, min(1.0, self._tolerance * self._noload_ns / rtt)) + queue
        if wanted < estimate:
            wanted = max(self._minimum, estimate * self._keep + self._smoothing * wanted)
        self._estimate = max(queue, min(self._maximum, wanted))


class Gradient2(EstimatingLaw):
    """Shrinks while calls are slower than usual, else grows by a queue: Gradient2Limit of Netflix's concurrency-limits.

    With L the estimate (the limit before rounding down), and long the average rtt of the first `warmup` samples and
    then of about the last `long_window`, of which one counts f = 2 / (long_window + 1), so long x (1 - f) + rtt x f:

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
        TypeError, ValueError: An argument is of the wrong type, or out of its range.

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import Gradient2
        >>> law = Gradient2(initial=50)
        >>> [law.update(Sample(0, 10_000_000, 50)) for _ in range(3)]
        [50, 51, 52]
    """

    __slots__ = ("_count", "_factor", "_queue_size", "_sum", "_tolerance", "_warmup")

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
        super().__init__(initial, minimum, maximum, smoothing)
        self._queue_size = setting.by_limit("queue_size", queue_size)
        self._factor = 2.0 / (setting.whole("long_window", long_window) + 1)
        self._warmup, self._count, self._sum = setting.whole("warmup", warmup), 0, 0.0
        self._tolerance = setting.between("tolerance", tolerance, 1.0, math.inf, "[)")

    def __repr__(self) -> str:
        return f"<Gradient2 {self._estimate:.2f}: {self._noload_ns:.0f} ns on average>"

    @property
    def long_rtt_ns(self) -> float:
        """The average rtt (ns); 0 before the first sample."""
        return float(self._noload_ns)

    def update(self, sample: Sample) -> int:
        """Take one step; the average learns also where the limit stays."""
        rtt = sample.rtt_ns
        if 0 < rtt <= setting.LONGEST_NS:
            if self._count < self._warmup:
                self._count, self._sum = self._count + 1, self._sum + rtt
                long = self._sum / self._count
            else:
                long = self._noload_ns * (1 - self._factor) + rtt * self._factor
            self._noload_ns = long * 0.95 if long / rtt > 2 else long
            estimate = self._estimate
            if sample.in_flight >= estimate / 2:
                gradient = max(0.5, min(1.0, self._tolerance * long / rtt))
                wanted = estimate * gradient + self._queue_size(int(estimate))
                blended = estimate * self._keep + wanted * self._smoothing
                self._estimate = max(self._minimum, min(self._maximum, blended))
        return int(self._estimate)
