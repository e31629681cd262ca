"""Looks for the knee of throughput over concurrency."""

import math
from collections.abc import Callable, Sequence

from batchlimit.core.sample import Sample
from batchlimit.laws.baseline import Baselines, Reading
from batchlimit.laws.slope import Slope
from batchlimit.laws.span import Span

_SHORTEST_SPAN = 200_000_000
SHARP=0.6
FALL=0.2
S=1.2
SLOW=0.02
KEEP=0.3
PR=0.7


def evenly() -> float:
    return 1.0


class Knee:
    __slots__ = (
        "_base", "_first", "_hold_until", "_in_slow_start", "_jitter", "_least", "_limit", "_loaded", "_maximum",
        "_minimum", "_peak", "_probe_every", "_probing", "_resume", "_slope", "_span", "_strained", "_tolerance",
        "_congested", "_before", "_spans", "_calm_at", "limit",
    )  # fmt: skip

    def __init__(
        self,
        initial: int = 20,
        minimum: int = 1,
        maximum: int = 1000,
        *,
        tolerance: float = 1.3,
        jitter: Callable[[], float] = evenly,
    ) -> None:
        self._minimum, self._maximum, self._first = minimum, maximum, initial
        self._limit = float(initial)
        self.limit = initial
        self._tolerance, self._jitter = tolerance, jitter
        self._span, self._base, self._slope = Span(), Baselines(), Slope()
        self._in_slow_start = True
        self._peak = float(initial)
        self._probing = self._spans = 0
        self._before = (0.0, 0.0)
        self._resume = 0.0
        self._loaded = 0
        self._calm_at = 0
        self._probe_every = 5
        self._congested = 0
        self._hold_until = -(10**30)
        self._strained = False
        self._least = _SHORTEST_SPAN

    def update(self, sample: Sample) -> int:
        if self._span.add(sample):
            self._close()
        return self.limit

    def _close(self) -> None:
        span = self._span
        now = span.end
        reading = self._base.read(span.times)
        since = -(10**30)
        self._peak = max(span.peak, self._peak + 0.02 * (span.peak - self._peak))
        if self._probing:
            self._probe(reading)
        else:
            self._decide(span, reading)
            if self._loaded >= self._probe_every and now - self._calm_at >= 20e9 * min(1, self._probe_every / 40):
                self._probing, self._resume = 2, self._limit
                self._limit *= 0.6
                since = now
        self._least = max(_SHORTEST_SPAN, int(min(3 * self._base.longest, 3e9)), int(self._base.longest))
        self._settle()
        span.restart(now, self._least, since)

    def _settle(self) -> None:
        self._limit = min(self._limit, max(self._first, 2 * self._peak), self._maximum)
        self._limit = max(self._limit, self._minimum)
        self.limit = int(self._limit + 0.5)

    def _probe(self, reading: Reading) -> None:
        self._probing -= 1
        if self._probing:
            self._base.follow(reading, 0.0)
        else:
            e = self._two_points(self._span, reading)
            self._base.follow(reading, PR if e is not None and e > 0.6 else 0.0, 0.5)
            if e is None or e > KEEP:
                self._limit = self._resume
            self._loaded = 0
            self._calm_at = self._span.end
            self._probe_every = min(40, 2 * self._probe_every)

    def _two_points(self, span: Span, reading: Reading) -> float | None:
        elapsed = max(1, span.end - span.begin)
        n, x = span.busy / elapsed, reading.work / elapsed
        n0, x0 = self._before
        if min(n, x, n0, x0) <= 0 or n0 < 1.1 * n:
            return None
        return math.log(x0 / x) / math.log(n0 / n)

    def allowed(self) -> float:
        return max(self._tolerance, 1 / max(0.2, 1 - S / math.sqrt(self._limit)))

    def _decide(self, span: Span, reading: Reading) -> None:
        self._spans += 1
        if self._spans == 1:
            return
        if self._spans == 2 and reading.ratio <= self.allowed():
            self._base.follow(reading, 1.0)
            reading = self._base.read(span.times)
        if span.dropped > 0.02 * span.count:
            self._shrink(0.85)
            return
        if span.peak < 0.8 * self.limit:
            self._base.follow(reading, 0.1 if reading.ratio <= self.allowed() else SLOW, FALL)
            self._loaded, self._calm_at = 0, span.end
            self._congested = 0
            self._slope.clear()
            return
        self._loaded += 1
        elapsed = max(1, span.end - span.begin)
        n, x = span.busy / elapsed, reading.work / elapsed
        n0, x0 = self._before
        self._before = (n, x) if self._loaded == 1 else ((n + n0) / 2, (x + x0) / 2)
        self._base.follow(reading, 0.0, FALL)
        ratio, allowed = reading.ratio, self.allowed()
        if 1 - 1 / ratio <= 0.5 * (1 - 1 / allowed):
            self._congested = 0
            self._slope.add(span.count, n, x)
            self._grow()
            return
        self._congested += 1
        if self._congested > 1:
            self._slope.add(span.count, n, x)
        e = self._slope.value
        if e is not None and e > 0.6:
            self._base.follow(reading, 1.0)
            self._limit *= 1.4
            self._loaded, self._calm_at = 0, span.end
            self._in_slow_start = True
            self._slope.clear()
            self._probe_every = 5
        elif ratio > allowed:
            sharp = self._congested > 1 and ratio > 1.2 * allowed
            self._shrink(max(SHARP, 1 / math.sqrt(ratio)) if sharp else 0.95)

    def _grow(self) -> None:
        if not self._strained:
            self._limit += 0.4 * self._limit if self._in_slow_start else math.sqrt(self._limit) / 2

    def _shrink(self, factor: float) -> None:
        self._in_slow_start = False
        if self._span.end >= self._hold_until:
            self._limit = min(self._limit, max(self._limit, self._span.busy / max(1, self._span.end - self._span.begin)) * factor)
            self._hold_until = self._span.end + self._least

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        self._strained = bool(events)
        if events and now_ns >= self._hold_until:
            self._limit = max(self._minimum, self._limit * 0.85)
            self._hold_until = now_ns + self._least
            self.limit = int(self._limit + 0.5)
        return self.limit
