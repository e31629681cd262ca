"""Laws of other libraries, as they publish them, with their defaults: they are compared, and not part of ours.

- Envoy: its documentation of the adaptive concurrency filter, and envoyproxy/envoy `gradient_controller.cc`.
- failsafe-go: the documentation of `adaptivelimiter`, and failsafe-go/failsafe-go `adaptivelimiter.go`.
- brpc: its document `auto_concurrency_limiter`, and apache/brpc `auto_concurrency_limiter.cpp`.

They have timers, and know how many calls are under way; a law of ours learns of a call when it ends. So a timer fires
with the first call that ends after it, and a limit was full if a call of the window found it so.
"""

import math
import statistics
from collections import deque
from random import Random

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws.vegas import log10

_SECOND = 10**9


class EnvoyGradient:
    """The limit times 1.25 minRTT / sampleRTT, and its root for bursts: every 100 ms, of medians.

    It learns minRTT from 50 calls at a limit of 3: at the start, every 60 s and up to 15 % later, and after five
    windows at that limit.
    """

    _LEAST, _MOST, _CALLS, _BUFFER = 3, 1000, 50, 1.25
    _WINDOW, _INTERVAL, _JITTER, _LOW = _SECOND // 10, 60 * _SECOND, 0.15, 5

    def __init__(self) -> None:
        self.limit = self._LEAST
        self._deferred: int | None = self._LEAST  # the limit to go back to, while minRTT is measured
        self._random = Random("jitter")
        self._times: list[int] = []
        self._epoch = self._due = self._next = self._lows = 0
        self._quickest = 0.0

    def update(self, sample: Sample) -> int:
        now = sample.start_ns + sample.rtt_ns
        if self._deferred is None and now >= self._next:
            self._measure(now)
        elif self._deferred is None and now >= self._due and self._times:
            self._step(now)
        if sample.start_ns >= self._epoch:
            self._times.append(sample.rtt_ns)
        if self._deferred is not None and len(self._times) >= self._CALLS:
            self._quickest = self._median()
            self.limit, self._deferred = self._deferred, None
            self._next = now + int(self._INTERVAL * (1 + self._random.uniform(0, self._JITTER)))
            self._due = now + self._WINDOW
        return self.limit

    def _median(self) -> float:
        median = statistics.median(self._times)
        self._times.clear()
        return median

    def _measure(self, now: int) -> None:
        self._deferred, self.limit, self._epoch, self._lows = self.limit, self._LEAST, now, 0
        self._times.clear()

    def _step(self, now: int) -> None:
        gradient = max(0.5, min(2.0, self._BUFFER * self._quickest / self._median()))
        before, wanted = self.limit, self.limit * gradient
        self.limit = max(self._LEAST, min(self._MOST, int(wanted + math.sqrt(wanted))))
        self._due = now + self._WINDOW
        self._lows = self._lows + 1 if before == self.limit == self._LEAST else 0
        if self._lows >= self._LOW:
            self._measure(now)


class _Smoothed:
    """A mean of the first 10 values, then an exponential one of this age."""

    def __init__(self, age: int) -> None:
        self._part, self._count, self.value = 2 / (age + 1), 0, 0.0

    def add(self, value: float) -> float:
        self._count += 1
        part = 1 / self._count if self._count <= 10 else self._part
        self.value += (value - self.value) * part
        return self.value


class FailsafeGo:
    """A Vegas of the 90th percentile, which shrinks as well where more calls under way bring no more throughput."""

    _SAMPLES, _LEAST, _MOST, _FACTOR = 50, 1, 200, 5

    def __init__(self) -> None:
        self.limit = 20
        self._times: list[int] = []
        self._peak = self._due = 0
        self._last: deque[float] = deque(maxlen=5)
        self._recent, self._baseline = _Smoothed(5), _Smoothed(10)
        self._history: deque[tuple[int, float, float]] = deque(maxlen=50)

    def update(self, sample: Sample) -> int:
        now = sample.start_ns + sample.rtt_ns
        if not sample.dropped:
            self._times.append(sample.rtt_ns)
            self._peak = max(self._peak, sample.in_flight)
        if now > self._due and len(self._times) >= self._SAMPLES:
            ordered = sorted(self._times)
            self._last.append(ordered[int(0.9 * len(ordered))])
            self._step(self._recent.add(statistics.median(self._last)))
            self._due = now + min(max(2 * ordered[0], _SECOND), 30 * _SECOND)
            self._times.clear()
            self._peak = 0
        return self.limit

    def _step(self, recent: float) -> None:
        queue = math.ceil(self.limit * (1 - self._baseline.add(recent) / recent))
        self._history.append((self._peak, self._peak / recent, recent))
        step = log10(self.limit)
        if queue > 6 * step or (self._peak >= self.limit and self._is_in_vain()):
            wanted = self.limit - step
        else:
            wanted = self.limit + (step if queue < 3 * step else 0)
        if wanted > self._FACTOR * self._peak:
            wanted = self.limit - step
        self.limit = max(self._LEAST, min(self._MOST, wanted))

    def _is_in_vain(self) -> bool:
        """Return whether throughput falls with the calls under way, or stays while times grow with them."""
        under_way, throughput, times = zip(*self._history, strict=True)
        gain, slowing = _correlation(under_way, throughput), _correlation(under_way, times)
        return gain < 0 or (slowing > 0.5 and (gain < 0.3 or _variation(throughput) < 0.2))


def _variation(values: tuple[float, ...]) -> float:
    return statistics.pstdev(values) / statistics.fmean(values)


def _correlation(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the correlation; 0 for fewer than 10 values, or where either is as good as constant."""
    if len(one) < 10 or min(_variation(one), _variation(other)) < 0.01:
        return 0.0
    return statistics.correlation(one, other)


class Brpc:
    """The least latency times the peak of throughput, by Little's law, and up to 40 % more while latency is low.

    Every 25 to 50 s it halves the limit for 2 s, and forgets the least latency.

    Args:
        minimum: The least limit, and the first; 40 by default there.
    """

    _SMOOTH, _MORE = 0.9, 0.4

    def __init__(self, minimum: int = 40) -> None:
        self.limit = 40
        self._minimum, self._random = minimum, Random("reset")
        self._times: list[int] = []
        self._begin = self._until = 0
        self._reset: int | None = None
        self._least = self._peak = 0.0
        self._rates: deque[float] = deque(maxlen=50)

    def update(self, sample: Sample) -> int:
        now = sample.start_ns + sample.rtt_ns
        if self._reset is None:
            self._begin, self._reset = now, self._next(now)
        self._times.append(sample.rtt_ns)
        age = now - self._begin
        if len(self._times) >= 500 or (len(self._times) >= 100 and age >= _SECOND):
            self._step(now, statistics.fmean(self._times), len(self._times) / max(1, age))
            self._times.clear()
            self._begin = now
        return self.limit

    def _next(self, now: int) -> int:
        return now + int(self._random.uniform(25, 50) * _SECOND)

    def _step(self, now: int, mean: float, rate: float) -> None:
        self._rates.append(rate)
        peak = max(self._rates)
        self._peak = peak if peak >= self._peak else self._smooth(self._peak, peak)
        if not self._least:
            self._least = mean
        elif mean < self._least:
            self._least = self._smooth(self._least, mean)
        if now < self._until:
            return
        if self._reset is not None and now >= self._reset:
            self._least, self._reset, self._until = 0.0, self._next(now), now + 2 * _SECOND
            wanted = self.limit // 2
        else:
            unloaded = math.ceil(self._least * self._peak)
            wanted = math.ceil(unloaded * max(1.0, 2 + self._MORE - mean / self._least))
        self.limit = max(self._minimum, wanted)

    def _smooth(self, before: float, now: float) -> float:
        return before * self._SMOOTH + now * (1 - self._SMOOTH)
