"""Where is the knee? A limit by how much longer calls take than without a queue."""

import math
from collections.abc import Sequence

from batchlimit.base import setting
from batchlimit.concurrency.law import CountingLaw, LawState, Sample
from batchlimit.concurrency.laws.knee.baseline import SHARPEST, Baselines, RatioBand, SpanTimes, Trust
from batchlimit.concurrency.laws.knee.span import Drains, Span, doubled

_SHORTEST_NS, _LONG_NS, _LONGEST_NS, _HASTY_NS, _HASTY = 200_000_000, 3 * 10**9, 60 * 10**9, 50_000_000, 8
"""A span is open for three round trips, where they are no longer than 1 s; for one where they take over 3 s. The first
8 may be shorter while a limit in use only grows: it refuses callers meanwhile."""
_STRAIN_NS = 60 * 10**9
"""How long a reason to back off keeps the limit from growing if watchers then say no more: they may have ended."""
_IN_USE = 0.8
"""The part of the limit that a span must have reached: what it shows is then the limit's doing, not the callers'."""
_REACHED_NS = 10**9
"""For how long spans must have reached the limit for it to matter to a new limiter: a hiccup alone does not."""
_LOST = 0.02
"""The share of dropped calls that is no accident."""
_CUT, _LEAP, _STEP, _LITTLE = 0.85, 0.4, 0.5, 0.1
"""What a loss leaves of the limit; the most that the limit grows by in a span, as a part of it; the least, and what it
grows by where there is little room, in square roots of it."""
_HEADROOM = 2.0
"""Times the peak of late that the limit may be: one that grew unused lets in a flood."""
_FADE = 0.02
"""How much of a peak is forgotten with each span that saw a lower one."""
_FALL, _RISE, _CREEP = 0.1, 0.1, 0.02
"""How far a baseline goes with each span: down; up when not in use; up when it looks like a queue all the same."""
_LASTS = 2
"""Spans far over what is allowed that are no pause any more."""
_SUDDEN, _EARLY, _WONTED = 1.6, 20, 0.1
"""Times the usual ratio that is sudden; the spans before which nothing is usual; how far the usual goes with each."""
_TOLD, _HEARD = 8, 10
"""Calls from which a span that a drain cuts short tells something, and from which one does while others drain."""


class Knee(CountingLaw):
    """Holds the calls under way where throughput stops growing with them: fewer waste capacity, more only queue.

    It decides once a span: some 40 calls, or fewer in a longer time. A span shows the ratio: how many times as long as
    without a queue the same calls took, each operation against baselines of its own: a median, and a mean without the
    extremes. Of the two ratios the lesser counts. What follows, with L the limit::

        in use (80 % of L or more), and room         grow: + sqrt(L) / 2, doubled with each such span, at most x1.4
        ratio over tolerance, and over 1.2 sqrt(L)   shrink: 5 %; if it lasts, by the root of the excess, at most to
          calls in line                              60 %
        between the two                              hold
        over 2 % of the calls dropped                x0.85
        not in use                                   hold, and learn how long calls take; shrink if the ratio is
                                                     far over tolerance and lasts

    Under a load that never ends, a drain shows how long calls take without a queue. L goes to a quarter for half a
    second, or a half where calls take at most 1.5 times as long. Limiters that share a backend drain together, every 16
    s of a common clock. So each sees the time that all together make, however many. A limiter whose limit is not in use
    does not drain, but looks while the others do. In its first 16 s a limiter drains each 4 s, and to a twentieth until
    there was calm, if its limit was reached for a second. What it takes for the time of a call may be the queue of
    those that came before. A baseline falls to what a drain shows; it rises only if drains are known to work. If calls
    take far longer suddenly, a drain comes at once. A call of no time, or over 104 days, is counted, not timed.

    Args:
        initial: The first limit (calls, default 20); taken to the nearer bound if it is out of bounds.
        minimum: The least limit (calls, default 1).
        maximum: The largest limit (calls, default 1000).
        tolerance: How many times as long as without a queue calls may take (above 1, default 1.3).
        offset: What to add to the clock of the limiter (ns) for a clock that all limiters of the backend share
            (default None: what makes it the time of day). Without one limits are higher than need be, and uneven.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is out of its range.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Knee
        >>> with ConcurrencyLimiter(Knee(initial=50, maximum=200)) as limiter:
        ...     limiter.limit
        50
    """

    __slots__ = (
        "_band", "_baselines", "_cut_at", "_drains", "_estimate", "_far", "_has_offset", "_initial",
        "_is_used", "_least", "_maximum", "_minimum", "_peak", "_ratio", "_reached_ns", "_span", "_spans", "_speed",
        "_strained_at", "_trust", "_uncut", "_usual", "_why",
    )  # fmt: skip

    def __init__(
        self, *, initial: int = 20, minimum: int = 1, maximum: int = 1000, tolerance: float = 1.3,
        offset: int | None = None,
    ) -> None:  # fmt: skip
        self._minimum, self._maximum = setting.bounds(minimum, maximum)
        self._initial = min(self._maximum, max(self._minimum, setting.whole("initial", initial)))
        self._band = RatioBand(setting.between("tolerance", tolerance, 1.0, math.inf, "()"))
        self._limit, self._estimate, self._peak = self._initial, float(self._initial), float(self._initial)
        self._least = _SHORTEST_NS  # how long the next span has to be
        self._span, self._baselines, self._trust = Span(), Baselines(), Trust()
        self._has_offset = offset is not None
        self._drains = Drains(setting.whole("offset", 0 if offset is None else offset, -math.inf, math.inf))
        self._spans = self._far = self._reached_ns = 0  # `_far`: spans in a row far over what is allowed
        self._speed, self._ratio, self._usual = math.inf, 1.0, 1.0  # of growth; of the last span; of those of late
        self._is_used, self._why = False, ""
        self._uncut = 0.0  # the limit before a sudden ratio cut it, until a drain has told why
        self._cut_at: int | None = None
        self._strained_at: int | None = None

    def __repr__(self) -> str:
        return f"<Knee {self._estimate:.2f}: {self._baselines!r}>"

    @property
    def baselines(self) -> dict[str, float]:
        """How long the calls of each operation take without a queue (s), as far as it is known."""
        return self._baselines.seconds

    @property
    def state(self) -> LawState:
        """Why the limit is what it is, the ratio, and the limit without the drain that is under way."""
        return LawState(self._why, self._ratio, int(self._drains.settled + 0.5) if self._drains.under_way else None)

    def _share_time(self, offset: int) -> None:
        """Go by a clock that is so many ns ahead of the limiter's, unless an `offset` was given."""
        if not self._has_offset:
            self._drains.offset = offset

    def update(self, sample: Sample) -> int:
        """Count a call; decide if it ends a span."""
        if self._span.add(sample):
            self._decide()
        return self._limit

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        """Shrink if watchers saw a reason to, and do not grow before a period without; at most one cut a span."""
        self._strained_at = now_ns if events else None
        if events:
            self._lose(now_ns)
            self._keep_in_bounds()
        return self._limit

    def _decide(self) -> None:
        now, is_due = self._span.end, self._drains.is_due(self._span.end)
        self._spans, self._why = self._spans + 1, ""
        if self._drains.under_way:
            self._heed_drain()
        elif self._span.count:
            self._heed_span(is_due)
        self._least = self._shortest_span()
        self._band.is_even = self._least < _LONG_NS and not self._drains.is_young(now, self._least)
        if is_due and self._span.count:
            self._drain()
        if is_due or self._spans <= _LASTS:
            self._drains.plan(now, self._least)
        self._keep_in_bounds()
        if self._drains.under_way:
            before = self._peak if self._drains.listens else self._drains.settled
            self._span.restart_drain(now, 4 * self._least, before)
        else:
            self._span.restart(now, self._least, self._drains.next)

    def _drain(self) -> None:
        """Let few calls in; or only listen, where the limit is not in use: then no part of a queue is its own.

        A new limiter that saw no calm drains all the same if its limit was reached for 1 s: it may know but a queue.
        """
        drains = self._drains
        is_unsure = self._reached_ns >= _REACHED_NS and not self._trust.has_been_calm
        deep = is_unsure and drains.is_young(drains.next, self._least)
        if self._is_used or deep:
            self._estimate, self._why = drains.begin(self._estimate, self._ratio, self._uncut, deep), "drain"
        elif drains.is_usual(self._least):
            drains.listen(self._estimate, self._ratio)

    def _shortest_span(self) -> int:
        """How long the next span has to be; in doublings, for limiters that drain together are to see the same."""
        longest = self._baselines.longest
        grows = self._is_used and self._spans < _HASTY and math.isinf(self._speed)
        return doubled(_HASTY_NS if grows else _SHORTEST_NS, max(min(3 * longest, _LONG_NS), min(longest, _LONGEST_NS)))

    def _keep_in_bounds(self) -> None:
        ceiling = min(self._maximum, max(self._initial, _HEADROOM * self._peak))
        self._why = self._why or ("unused" if self._estimate > ceiling else "")
        self._estimate = max(self._minimum, min(self._estimate, ceiling))
        self._limit = int(self._estimate + 0.5)

    def _heed_span(self, is_cut_short: bool) -> None:
        span = self._span
        reading = self._baselines.read(span.times)
        peak = min(span.peak, self._maximum)
        self._peak += (peak - self._peak) * (1.0 if peak > self._peak else _FADE)
        self._is_used, self._ratio = span.peak >= _IN_USE * self._limit, reading.ratio
        self._reached_ns += span.length if span.peak >= self._limit else 0
        if self._spans > _EARLY:
            self._baselines.learn_tails(span.times)
        if span.dropped > _LOST * span.count:
            self._lose(span.end)
        elif self._spans > 1 and (span.count >= _TOLD or not is_cut_short):
            (self._steer if self._is_used else self._learn_unused)(reading)

    def _learn_unused(self, reading: SpanTimes) -> None:
        """Learn from a span that the limit did not bound: nobody queues there, unless the ratio says so.

        Then others may have filled the backend, and a limit that could let in far more has to come down as well.
        """
        looks_calm = reading.ratio <= self._band.allowed(self._estimate)
        self._baselines.move(reading, _RISE if looks_calm else _CREEP, _FALL)
        self._far = self._far + 1 if self._band.is_far(reading.ratio, self._estimate) else 0
        if looks_calm:
            self._trust.calm(self._span.length, is_idle=True)
        if self._far < _LASTS:
            self._usual += _WONTED * (reading.ratio - self._usual)
        else:
            self._cut(self._band.factor(reading.ratio, self._estimate, lasts=True), self._span.concurrency)

    def _steer(self, reading: SpanTimes) -> None:
        ratio, limit = reading.ratio, self._estimate
        self._baselines.move(reading, 0.0, _FALL)
        if self._band.has_room(ratio, limit):
            self._far = 0
            self._trust.calm(self._span.length, is_idle=False)
            if not self._is_strained():
                self._estimate += min(_LEAP * limit, _STEP * math.sqrt(limit) * self._speed)
                self._speed *= 2
        elif ratio <= self._band.allowed(limit):
            self._far, self._speed = 0, 1.0
            if self._band.has_room(ratio, limit, for_few=True) and not self._is_strained():
                self._estimate += _LITTLE * math.sqrt(limit)
        else:
            self._shrink(ratio)
        if not self._uncut and self._far < _LASTS:
            self._usual += _WONTED * (ratio - self._usual)

    def _is_strained(self) -> bool:
        return self._strained_at is not None and abs(self._span.end - self._strained_at) < _STRAIN_NS

    def _shrink(self, ratio: float) -> None:
        limit = self._estimate
        self._speed = 1.0
        self._trust.queued()
        self._far = self._far + 1 if self._band.is_far(ratio, limit) else 0
        lasts = self._far >= _LASTS
        if self._uncut:
            if lasts:
                # No further than a queue would make it go: it may be none.
                least = self._uncut * self._band.allowed(limit) / ratio
                self._estimate = max(SHARPEST * limit, min(limit, least))
        elif lasts and self._spans > _EARLY and ratio > _SUDDEN * self._usual:
            self._uncut = limit
            self._cut(max(SHARPEST, 1 / math.sqrt(ratio)), self._span.concurrency)
            self._drains.hurry(self._span.end, self._least)
        else:
            # Calls that queue were admitted under the limit before: back off from what there was, not twice.
            self._cut(self._band.factor(ratio, limit, lasts), self._span.concurrency)

    def _heed_drain(self) -> None:
        """Learn how long calls take without a queue; go back to what the limit was, or to what it should have been."""
        drains, span, reading = self._drains, self._span, self._baselines.read(self._span.times, self._span.within)
        if self._baselines.is_far_off(reading.ratio) and span.peak > 1:  # short calls alone may have been over
            reading = self._baselines.read(span.times, span.length, is_new=False)
        drains.under_way = False
        self._estimate, self._why = drains.settled, "drain"
        ratio = reading.ratio
        # The drains of the others may show that calls take far less than was believed, if enough calls do.
        if not (self._baselines.is_far_off(ratio) and span.count >= _HEARD if drains.listens else reading.counts):
            return
        may_rise = not drains.listens and self._trust.drained(drains.ratio_before, ratio)
        is_quick = self._least < _LONG_NS
        change = self._baselines.learn_drain(reading, may_rise, span.is_by_chance, is_quick)
        # Drains of slow calls are rare: where a baseline fell, maybe by chance, what comes next is sudden the sooner.
        self._usual *= 1 / change if is_quick else change
        if drains.listens:
            return
        drains.relax(self._least, self._baselines.is_far_off(ratio))
        if self._trust.responded(drains.ratio_before, ratio):
            needed = self._estimate * ratio / drains.ratio_before
            self._estimate = min(self._estimate, max(1.0, needed * self._band.allowed(max(1.0, needed))))
        elif self._uncut and self._trust.is_news(ratio):
            self._estimate, self._speed, self._why = max(self._estimate, self._uncut), math.inf, "trust"
        if self._uncut:
            self._uncut, self._far, self._usual = 0.0, 0, max(1.0, self._usual)

    def _lose(self, now: int) -> None:
        """Shrink for a loss, at most once a span."""
        if self._cut_at is None or abs(now - self._cut_at) >= self._least:
            self._cut_at, self._why = now, "loss"
            self._cut(_CUT, self._estimate)

    def _cut(self, factor: float, concurrency: float) -> None:
        self._speed = 1.0
        self._estimate = min(self._estimate, max(self._estimate, concurrency) * factor)
        self._drains.settled *= factor
