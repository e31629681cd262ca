"""Where is the knee? A limit by what more calls at once are good for."""

import math
from collections.abc import Callable, Sequence

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import setting
from batchlimit.concurrency.laws.knee.band import Band
from batchlimit.concurrency.laws.knee.baseline import Baselines, Reading
from batchlimit.concurrency.laws.knee.probe import Probe
from batchlimit.concurrency.laws.knee.slope import Point, Slope, between, point_of
from batchlimit.concurrency.laws.knee.span import Span

_SHORTEST_NS, _LONG_NS, _LONGEST_NS = 200_000_000, 3 * 10**9, 60 * 10**9
"""A span is open for three round trips, where they are no longer than 1 s; for one where they take over 3 s."""
_STRAIN_NS = 60 * 10**9
"""How long a reason to back off keeps the limit from growing if watchers then say no more: they may have ended."""
_IN_USE = 0.8
"""The part of the limit that a span must have reached: what it shows is then the limit's doing, not the callers'."""
_LOST = 0.02
"""The share of dropped calls that is no accident."""
_CUT, _LEAP = 0.85, 1.4
_STEEP, _FLAT = 0.6, 0.3
"""Slopes from which on calls merely take longer, and up to which more of them at once bring nothing."""
_SURE = 25
"""Calls of a probe whose slope is true to about 0.3."""
_HEADROOM = 2.0
"""Times the largest crowd of late that the limit may be: one that grew unused lets in a flood."""
_FADE = 0.02
"""How much of a crowd is forgotten with each span that saw a smaller one."""
_FALL, _RISE, _CREEP = 0.1, 0.1, 0.02
"""How far a baseline goes with each span: down; up when not in use; up when it looks like a queue all the same."""
_PROBED_RISE, _PROBED_FALL = 0.7, 0.5


def _even() -> float:
    return 1.0


class Knee:
    """Holds the calls under way where throughput stops growing with them: fewer waste capacity, more only queue.

    It decides once a span: some 40 calls, or fewer in a longer time. A span shows the ratio: how many times as long as
    without a queue the same calls took, each operation against a baseline of its own. What follows, with L the limit:

        in use (80 % of L or more), ratio near 1     grow: x1.4 until something slows, from then on + sqrt(L) / 2
        ratio over tolerance, and over 1.2 sqrt(L)   shrink: 5 %; if it lasts, by the root of the ratio, to 60 % at most
          calls in line
        between the two                              hold
        over 2 % of the calls dropped                x0.85
        not in use                                   hold, and learn how long calls take

    The ratio alone cannot tell a queue from calls that merely take longer, as when something further down has slowed.
    The slope of throughput over concurrency can: where more calls at once bring more answers there is no queue, and the
    baselines move to the new times. Under a load that never ends, another limit is tried for two spans now and then.

    A call of no time, or over 104 days, is counted, not timed.

    Args:
        initial: The first limit (calls, default 20); taken to the nearer bound if it is out of bounds.
        minimum: The least limit (calls, default 1).
        maximum: The largest limit (calls, default 1000).
        tolerance: How many times as long as without a queue calls may take (above 1, default 1.3).
        jitter: Returns a number about 1; a random one spreads the probes of many processes (default: always 1).

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is out of its range.

    Example:
        >>> import random
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Knee
        >>> with ConcurrencyLimiter(Knee(initial=50, jitter=lambda: random.uniform(0.5, 1.5))) as limiter:
        ...     limiter.limit
        50
    """

    __slots__ = (
        "_band", "_baselines", "_before", "_cut_at", "_estimate", "_in_slow_start", "_initial", "_is_far", "_is_first",
        "_jitter", "_least", "_limit", "_maximum", "_minimum", "_peak", "_probe", "_slope", "_span", "_strained_at",
    )  # fmt: skip

    def __init__(
        self,
        *,
        initial: int = 20,
        minimum: int = 1,
        maximum: int = 1000,
        tolerance: float = 1.3,
        jitter: Callable[[], float] = _even,
    ) -> None:
        self._minimum, self._maximum = setting.bounds(minimum, maximum)
        self._initial = min(self._maximum, max(self._minimum, setting.whole("initial", initial)))
        self._band = Band(setting.between("tolerance", tolerance, 1.0, math.inf, "()"))
        self._jitter = setting.function("jitter", jitter)
        self._limit, self._estimate, self._peak = self._initial, float(self._initial), float(self._initial)
        self._least = _SHORTEST_NS
        self._span, self._baselines, self._slope, self._probe = Span(self._least), Baselines(), Slope(), Probe()
        self._before: Point | None = None
        self._is_first = self._in_slow_start = True
        self._is_far = False
        self._cut_at: int | None = None
        self._strained_at: int | None = None

    def __repr__(self) -> str:
        return f"<Knee {self._estimate:.2f}: {self._baselines!r}, {self._slope!r}, {self._probe!r}>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._limit

    def update(self, sample: Sample) -> int:
        """Count a call; decide if it ends a span."""
        if self._span.add(sample):
            self._decide()
        return self._limit

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        """Shrink if watchers saw a reason to, and do not grow before a period without; at most one cut a span."""
        self._strained_at = now_ns if events else None
        if events:
            self._cut(_CUT, now_ns, self._estimate)
            self._settle()
        return self._limit

    def _decide(self) -> None:
        span = self._span
        reading = self._baselines.read(span.times)
        peak = min(span.peak, self._maximum)
        self._peak += (peak - self._peak) * (1.0 if peak > self._peak else _FADE)
        begins = False
        if span.dropped > _LOST * span.count:
            self._cut(_CUT, span.end, self._estimate)
        if self._probe.under_way:
            begins = self._heed_probe(reading)
        elif self._is_first or span.dropped > _LOST * span.count:
            self._is_first = False
        elif span.peak < _IN_USE * self._limit:
            self._rest(reading)
        else:
            self._steer(reading)
            begins = self._probe.is_due(span.end, self._jitter())
        if begins:
            self._estimate = self._probe.begin(self._estimate, self._minimum)
        self._settle()
        longest = self._baselines.longest
        self._least = int(max(_SHORTEST_NS, min(3 * longest, _LONG_NS), min(longest, _LONGEST_NS)))
        if begins:
            span.restart(span.end, self._least, since=span.end)
        else:
            span.restart(span.end, self._least)

    def _settle(self) -> None:
        ceiling = min(self._maximum, max(self._initial, _HEADROOM * self._peak))
        self._estimate = max(self._minimum, min(self._estimate, ceiling))
        self._limit = int(self._estimate + 0.5)

    def _rest(self, reading: Reading) -> None:
        """Learn from a span that the limit did not bound: nobody queues there, unless the ratio says so."""
        looks_calm = reading.ratio <= self._band.allowed(self._estimate)
        self._baselines.move(reading, _RISE if looks_calm else _CREEP, _FALL)
        self._probe.calm(self._span.end)
        self._before = None
        self._slope.clear()
        self._is_far = False

    def _steer(self, reading: Reading) -> None:
        point, ratio = point_of(self._span, reading.weight), reading.ratio
        self._baselines.move(reading, 0.0, _FALL)
        has_room, lasts = self._band.has_room(ratio, self._estimate), self._is_far
        # Once far, it stays so until there is room again: between, chance decides.
        self._is_far = not has_room and (lasts or self._band.is_far(ratio, self._estimate))
        if self._is_far and not lasts:
            # A leap: what came before would put down to the limit what the backend did, and this span is half of it.
            self._slope.clear()
        elif point is not None:
            self._slope.add(point)
        if point is not None:
            self._before = point if self._before is None else self._before.halfway(point)
        slope = self._slope.value
        if has_room:
            self._grow()
        elif slope is not None and slope > _STEEP:
            self._start_over(reading)
        else:
            factor = self._band.factor(ratio, self._estimate, lasts)
            if factor < 1:
                # Calls that queue were admitted under the limit before: back off from what there was, not twice.
                self._cut(factor, self._span.end, self._span.concurrency)

    def _start_over(self, reading: Reading) -> None:
        """No queue: calls merely take longer than they did."""
        self._baselines.move(reading, 1.0, 1.0)
        self._estimate *= _LEAP
        self._in_slow_start = True
        self._slope.clear()
        self._probe.hurry(self._span.end)

    def _heed_probe(self, reading: Reading) -> bool:
        """Learn from a span of a probe; return whether to go on with another."""
        point, is_over = point_of(self._span, reading.weight), self._probe.step(self._span.end)
        slope = None if point is None or self._before is None else between(self._before, point)
        no_queue = is_over and slope is not None and slope > _STEEP
        self._baselines.move(reading, _PROBED_RISE if no_queue else 0.0, _PROBED_FALL)
        if not is_over:
            return False
        lost = slope is None or slope >= _FLAT or self._estimate >= self._probe.resume
        if lost:
            self._estimate = self._probe.resume
        # Where a lower limit lost nothing, the knee is further down; unless it was too few calls to say so.
        goes_on = not lost and point is not None and point.calls >= _SURE
        self._before = point if goes_on else None
        return goes_on

    def _grow(self) -> None:
        if self._strained_at is None or abs(self._span.end - self._strained_at) >= _STRAIN_NS:
            self._estimate += (_LEAP - 1) * self._estimate if self._in_slow_start else math.sqrt(self._estimate) / 2

    def _cut(self, factor: float, now: int, crowd: float) -> None:
        self._in_slow_start = False
        if self._cut_at is not None and abs(now - self._cut_at) < self._least:
            return
        self._cut_at = now
        self._estimate = min(self._estimate, max(self._estimate, crowd) * factor)
        self._probe.resume *= factor
