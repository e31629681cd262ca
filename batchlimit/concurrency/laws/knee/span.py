"""What is gathered of calls that ended before a law decides: a span of time that is long enough to tell something.

And when all limiters let few calls in for a moment: under a load that lasts, nothing else shows what calls take. One of
many limiters is a small part of what queues. Only if all of them drain is there no queue, however many they are and
whoever just came. They need not talk for that: they drain when a clock that they share shows a multiple of 16 s.
"""

import math

from batchlimit.base.setting import LONGEST_NS
from batchlimit.concurrency.law import Sample

FOR_EVER = 10**30
"""ns: later than any clock shows."""
_KEPT = 2048
"""rtts that are kept of a span: more make the median no truer."""
_NAMES = 64
"""Operations that are held apart; one too many, as when someone puts an id in the name, counts as unnamed."""
_ENOUGH = ((40, 0), (8, 3 * 10**9), (2, 10 * 10**9), (1, 60 * 10**9))
"""How many calls end a span that is so many ns old: many calls a short one, few calls a long one."""
_FIRST = 8
"""Calls that are enough for the first span of all: what comes next may have queued behind them."""
_ROUND_TRIPS = 3
"""How many times as old as a call is long a span must be: or only the short calls among those admitted have ended."""
_DRAIN_NS, _LONG_DRAIN_NS = 4 * 10**8, 6 * 10**8
"""A drain lasts so long, with many calls or with few. It is the same for all limiters: they drain together."""
_MANY, _FEW = 10, 2
"""Calls of a drain that are many, and that are enough if it lasts longer."""
_SLOW_NS, _SIDE_BY_SIDE = 5 * 10**9, 6
"""A drain that lasts so long shows slow calls: of many side by side the long ones are not over in time. Where more than
so many are, it is mostly chance which were over."""


class Span:
    """Calls that ended since the last decision. None is thrown away: no rate is too low to decide at all.

    Instants and durations are in ns. A span is open for at least as long as the law says, a few round trips: what the
    last decision changed has to show. The first span ends soon. The span of a drain ends when calls that were admitted
    in it show how long calls take. It depends on those calls alone, not on what is believed.
    """

    __slots__ = (
        "_before", "_due", "_give_up", "_is_first", "_names", "_since", "_until", "begin", "busy", "count", "dropped",
        "end", "peak", "times",
    )  # fmt: skip

    def __init__(self) -> None:
        self._names = {""}
        self._before = 0.0
        self.restart(FOR_EVER, 0)
        self._is_first = True

    @property
    def length(self) -> int:
        """How long it took, at least 1 ns."""
        return max(1, self.end - self.begin)

    @property
    def within(self) -> int:
        """In how many ns the calls of a drain had to begin and end, where that left out long ones; else 0."""
        return self.length if self.length >= _SLOW_NS and self.peak > 1 else 0

    @property
    def is_by_chance(self) -> bool:
        """Whether a drain may have shown short calls only by chance."""
        return self.within > 0 and self.peak > _SIDE_BY_SIDE

    @property
    def concurrency(self) -> float:
        """How many calls were under way on average: the time that they took, over the time that passed."""
        return self.busy / self.length

    def restart(self, now: int, least: int, until: int = FOR_EVER) -> None:
        """Begin anew, for at least so long, and until the instant `until` at most."""
        self.begin = self.end = now
        self._due, self._until, self._since = min(now + least, until), until, -FOR_EVER
        self._give_up, self._is_first = 0, False
        self.count = self.dropped = self.busy = self.peak = 0
        self.times: dict[str, list[int]] = {}

    def restart_drain(self, now: int, give_up: int, before: float) -> None:
        """Begin a drain: only calls that are admitted from now on count.

        It ends after `give_up` if there are none, but not before so many calls from `before` have ended: where they
        take that long, there is a queue to see.
        """
        self.restart(now, 0)
        self._before = before
        self._since, self._give_up = now, max(give_up, _LONG_DRAIN_NS)

    def add(self, sample: Sample) -> bool:
        """Count a call that ended; return whether that is enough to decide."""
        start, rtt, in_flight, dropped, operation = sample
        end = start + rtt
        if start < self._since:
            self._before -= 1
        else:
            if self._give_up and not self.count:
                self.begin = start  # the calls from before had to end first
            self.count += 1
            if in_flight > self.peak:
                self.peak = in_flight
            if dropped:
                self.dropped += 1
            # A time that cannot be is none; how long it took a call to fail says nothing of those that succeed.
            if 0 < rtt <= LONGEST_NS:
                self.busy += rtt
                if not dropped and self.count <= _KEPT:
                    try:
                        self.times[operation].append(rtt)
                    except KeyError:
                        self._meet(operation, rtt)
        if self.begin <= end < self._due:
            return False
        return self._is_over(start, end)

    def _meet(self, operation: str, rtt: int) -> None:
        if operation not in self._names:
            operation = operation if len(self._names) < _NAMES else ""
            self._names.add(operation)
        self.times.setdefault(operation, []).append(rtt)

    def _is_over(self, start: int, end: int) -> bool:
        if end < self.begin:
            # The first call of all; or the clock stepped back, or a call had claimed to be of the future.
            self._due += start - self.begin
            self.begin = start
            self._since = min(self._since, end)
        self.end = end
        age = end - self.begin
        if self._give_up:  # a drain, which is to show calls without a queue
            if age >= self._give_up and self._before <= 0:
                return True
            if age < _DRAIN_NS or self.count < _FEW:
                return False
            shown = self._due_after(0.5)
            return age >= shown if self.count >= _MANY else age >= max(_LONG_DRAIN_NS, 1.5 * shown)
        if self._is_first and self.count >= _FIRST and age >= self._due_after(0.25):
            return True
        return end >= self._until or (end >= self._due and any(self.count >= n and age >= at for n, at in _ENOUGH))

    def _due_after(self, part: float) -> int:
        """Return how old the span must be: some round trips of the slowest operation, as far as `part` of them tell."""
        rtts = (sorted(each)[int(len(each) * part)] for each in self.times.values())
        shown = _ROUND_TRIPS * max(rtts, default=0)
        # Looked at again then, not with each call: that would sort for each.
        self._due = max(self._due, self.begin + shown)
        return shown


_SECOND = 10**9
_SOONEST, _USUAL = 2 * _SECOND, 16 * _SECOND
"""The first drain comes soon. Each doubles the wait, up to the usual one: powers of two, so that all waits have the
longer ones in common."""
_SPANS = 40
"""Spans between two drains at least; a drain of a quarter then costs about 2 %."""
_HASTY_SPANS, _FEWEST_SPANS = 4, 5
_PART, _TINY = 0.25, 0.2
"""Of the limit: so little that there is no queue, were it four times too high. Rounded up, but for a fifth: two workers
are not to drain to one, and one worker not to two."""
_YOUNG, _DEEP_PART, _QUICK = 4 * _SECOND, 0.05, 4 * _SECOND
"""In its first 16 s a limiter drains each 4 s, and to such a part as long as there never was calm. What it takes for
the time of a call may be a queue, above all if others came before it. So that must not put off drains, nor say how deep
they are. Spans are to be shorter than 4 s: few slow calls would show nothing."""
_LIGHT_PART, _LIGHT = 0.5, 1.5
"""What is enough of the limit where calls took only so much longer, and the last drain showed no great news."""


class Drains:
    """Says when to drain, and holds the limit from before; `offset` (ns) makes an instant one of the common clock."""

    __slots__ = (
        "_every", "_may_be_light", "_next", "_young_until", "listens", "offset", "ratio_before", "settled",
        "under_way",
    )  # fmt: skip

    def __init__(self, offset: int) -> None:
        self.offset, self._every = offset, _SOONEST
        self._next: int | None = None
        self._young_until = 0
        self.under_way = self._may_be_light = self.listens = False
        """Whether one is under way; whether the next may let half in; and whether the others alone let few calls in."""
        self.settled = 0.0
        """The limit to go back to."""
        self.ratio_before = 1.0
        """The ratio before."""

    @property
    def next(self) -> int:
        return 0 if self._next is None else self._next

    def is_due(self, now: int) -> bool:
        """Return whether it is time; the distance counts, for a clock that leapt must not put drains off for ever."""
        return self._next is not None and (now >= self._next or self._next - now > 2 * self._every)

    def plan(self, now: int, span: int) -> None:
        """Choose the next instant, if a span is so long. What early drains say by chance stands for 16 s at most."""
        self._every = max(self._every, doubled(_SECOND, _FEWEST_SPANS * span))
        if not self._young_until:
            self._young_until = now + _USUAL
        soon = self._multiple(min(self._every, _YOUNG), now)
        every = min(self._every, _USUAL) if self.is_young(now, span) else self._every
        self._next = soon if self.is_young(soon, span) else self._multiple(every, now)

    def hurry(self, now: int, span: int) -> None:
        """Choose one that is near: something is new."""
        self._may_be_light = False
        self._next = self._multiple(doubled(_SECOND, _HASTY_SPANS * span), now)

    def relax(self, span: int, is_far_off: bool = False) -> None:
        """Wait longer for the next one; let it be deep if this one showed that calls are far quicker than believed."""
        self._may_be_light = not is_far_off and self._every >= _USUAL
        self._every = self._every if is_far_off else min(2 * self._every, _usual(span))

    def begin(self, limit: float, ratio: float, uncut: float, deep: bool = False) -> float:
        """Return the limit of a drain; `uncut`: what the limit was before it was cut for the same reason."""
        self.listen(limit, ratio)
        self.listens = False
        part = _DEEP_PART if deep else _LIGHT_PART if self._may_be_light and ratio <= _LIGHT else _PART
        return min(limit, max(1, math.ceil(part * max(limit, uncut) - _TINY)))

    def is_young(self, at: int, span: int) -> bool:
        """Return whether little will be known yet of what calls take at that instant; `span`: how long one is."""
        return at < self._young_until and span < _QUICK

    def listen(self, limit: float, ratio: float) -> None:
        """See how long calls take while the others drain: a limit that is not in use need not."""
        self.under_way, self.listens, self.settled, self.ratio_before = True, True, limit, ratio

    def is_usual(self, span: int) -> bool:
        """Return whether all limiters with such spans that have settled drain now."""
        return (self.next + self.offset) % _usual(span) == 0

    def _multiple(self, every: int, now: int) -> int:
        return ((now + self.offset) // every + 1) * every - self.offset


def _usual(span: int) -> int:
    return max(_USUAL, doubled(_SECOND, _SPANS * span))


def doubled(unit: int, least: float) -> int:
    """The unit, doubled until it is as long."""
    return unit << max(0, math.ceil(least / unit) - 1).bit_length()
