"""Vegas: how many calls wait in a queue, told from how much slower calls are than the fastest."""

import math
from collections.abc import Callable

from batchlimit.base import setting
from batchlimit.concurrency.law import EstimatingLaw, Sample


def log10(limit: int) -> int:
    """Return the decimal logarithm of a limit, rounded down, at least 1. It is counted in digits, so it is exact.

    Args:
        limit: The limit (calls).

    Returns:
        The logarithm (calls).

    Example:
        >>> from batchlimit.laws import log10
        >>> log10(20), log10(1000)
        (1, 3)
    """
    return 1 if limit < 100 else len(str(limit)) - 1


class Vegas(EstimatingLaw):
    """Holds the queue between alpha and beta calls: VegasLimit of Netflix's concurrency-limits, after TCP Vegas.

    With L the estimate (the limit before rounding down), and noload the least rtt since the last probe:
    queue = ceil(L x (1 - noload / rtt)). A drop decreases L, and so does queue > beta. Otherwise, if at least half of L
    was in use, queue <= threshold adds beta, and queue < alpha increases it. The result is held between 1 and
    `maximum`, and blended: L x (1 - smoothing) + new x smoothing.

    Every jitter x probe_multiplier x L samples, the rtt of a sample becomes the noload, whatever the load was. Neither
    such a probe nor a sample faster than the noload moves the limit. So one lucky call holds it down until the next
    probe: for samples of single calls prefer Windowed(Vegas()). A sample without a duration (0 or less, or over 104
    days) is ignored, where the original raises.

    Args:
        initial: The first limit (calls, default 20). Above `maximum`, it stands until the first step.
        maximum: The largest limit (calls, default 1000).
        smoothing: The weight of a new result (above 0, at most 1, default 1.0).
        alpha: The least queue (calls), or a function of the whole limit (default 3 x log10(limit)).
        beta: The largest queue (calls), or a function of the whole limit (default 6 x log10(limit)).
        threshold: Up to this queue L grows by beta (calls), or a function of the whole limit (default `log10`).
        increase: A function of L; returns a finite larger L (default: adds log10(limit)).
        decrease: A function of L; returns a finite smaller L (default: takes off log10(limit)).
        probe_multiplier: How many times L samples there are between two probes (default 30).
        jitter: Returns a number in [0.5, 1) at first and after each probe. A random one keeps processes from probing in
            step (default: always 0.75, since a law draws no random numbers).

    Raises:
        TypeError, ValueError: An argument is of the wrong type, or out of its range.

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import Vegas
        >>> law = Vegas(initial=20)
        >>> [law.update(Sample(0, rtt, 20)) for rtt in (10_000_000, 10_000_000, 20_000_000)]
        [20, 26, 25]
    """

    __slots__ = (
        "_alpha", "_beta", "_decrease", "_increase", "_jitter", "_pace", "_probe_count",
        "_probe_multiplier", "_threshold",
    )  # fmt: skip

    def __init__(
        self,
        *,
        initial: int = 20,
        maximum: int = 1000,
        smoothing: float = 1.0,
        alpha: int | Callable[[int], float] = lambda limit: 3 * log10(limit),
        beta: int | Callable[[int], float] = lambda limit: 6 * log10(limit),
        threshold: int | Callable[[int], float] = log10,
        increase: Callable[[float], float] = lambda limit: limit + log10(int(limit)),
        decrease: Callable[[float], float] = lambda limit: limit - log10(int(limit)),
        probe_multiplier: int = 30,
        jitter: Callable[[], float] = lambda: 0.75,
    ) -> None:
        super().__init__(initial, 1, maximum, smoothing)
        self._alpha = setting.by_limit("alpha", alpha)
        self._beta = setting.by_limit("beta", beta)
        self._threshold = setting.by_limit("threshold", threshold)
        self._increase = setting.function("increase", increase)
        self._decrease = setting.function("decrease", decrease)
        self._probe_multiplier = setting.whole("probe_multiplier", probe_multiplier)
        self._jitter = setting.function("jitter", jitter)
        self._pace = self._jitter() * self._probe_multiplier
        self._probe_count = 0

    def __repr__(self) -> str:
        return f"<Vegas {self._estimate:.2f}: {self._noload_ns} ns at no load, {self._probe_count} since the probe>"

    @property
    def rtt_noload_ns(self) -> int:
        """How long a call is taken to last if none waits (ns); 0 if that is not known yet."""
        return int(self._noload_ns)

    @property
    def probe_count(self) -> int:
        """How many samples there were since the last probe."""
        return self._probe_count

    def update(self, sample: Sample) -> int:
        """Take one step, or learn a noload rtt instead."""
        rtt = sample.rtt_ns
        if not 0 < rtt <= setting.LONGEST_NS:
            return int(self._estimate)
        self._probe_count += 1
        if self._pace * self._estimate <= self._probe_count:
            self._pace, self._probe_count = self._jitter() * self._probe_multiplier, 0
            self._noload_ns = rtt
        elif rtt < self._noload_ns or self._noload_ns == 0:
            self._noload_ns = rtt
        # Told apart from the estimate itself: blending that with itself would move it by the rounding.
        elif (wanted := self._wanted(sample)) is not None:
            held = max(self._minimum, min(self._maximum, wanted))
            self._estimate = self._keep * self._estimate + self._smoothing * held
        return int(self._estimate)

    def _wanted(self, sample: Sample) -> float | None:
        estimate = self._estimate
        if sample.dropped:
            return self._decrease(estimate)
        if 2 * sample.in_flight < estimate:
            return None
        whole = int(estimate)
        queue = math.ceil(estimate * (1 - self._noload_ns / sample.rtt_ns))
        if queue <= self._threshold(whole):
            return estimate + self._beta(whole)
        if queue < self._alpha(whole):
            return self._increase(estimate)
        return self._decrease(estimate) if queue > self._beta(whole) else None
