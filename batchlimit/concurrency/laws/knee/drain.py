"""When all limiters let few calls in for a moment, to see what calls take: under a load that lasts nothing else shows.

One of many limiters is a small part of what queues. Only if all of them drain is there no queue, however many they are
and whoever just came. They need not talk for that: they drain when a clock that they share shows a multiple of 16 s.
"""

import math

_SECOND = 10**9
_FIRST, _USUAL = 2 * _SECOND, 16 * _SECOND
"""The first drain comes soon. Each doubles the wait, up to the usual one: powers of two, so that all waits have the
longer ones in common."""
_SPANS = 40
"""Spans between two drains at least; a drain of a quarter then costs about 2 %."""
_HASTY_SPANS, _FEWEST_SPANS = 4, 5
_PART = 0.25
"""Of the limit: so little that there is no queue, were it four times too high. Rounded up, but for a fifth: two workers
are not to drain to one, and one worker not to two."""
_TINY = 0.2
_YOUNG, _DEEP_PART, _QUICK = 4 * _SECOND, 0.05, 4 * _SECOND
"""In its first 16 s a limiter drains each 4 s, and to such a part as long as there never was calm. What it takes for
the time of a call may be a queue, above all if others came before it. So that must not put off drains, nor say how deep
they are. Spans are to be shorter than 4 s: few slow calls would show nothing."""
_LIGHT_PART, _LIGHT = 0.5, 1.5
"""What is enough of the limit where calls took only so much longer, and the last drain showed no great news."""


class Drains:
    """Says when to drain, and holds what the limit was before.

    Args:
        offset: What to add to an instant (ns) to have it on the clock that all limiters share.
    """

    __slots__ = (
        "_every", "_may_be_light", "_next", "_young_until", "before", "listens", "offset", "settled", "under_way",
    )  # fmt: skip

    def __init__(self, offset: int) -> None:
        self.offset, self._every = offset, _FIRST
        self._next: int | None = None
        self._young_until = 0
        self.under_way = self._may_be_light = self.listens = False
        """Whether one is under way; whether the next may let half in; and whether the others alone let few calls in."""
        self.settled = 0.0
        """The limit to go back to."""
        self.before = 1.0
        """The ratio before."""

    def __repr__(self) -> str:
        return f"<Drains every {self._every / 1e9:g} s{', under way' if self.under_way else ''}>"

    @property
    def next(self) -> int:
        """When the next one is to begin."""
        return 0 if self._next is None else self._next

    def is_due(self, now: int) -> bool:
        """Return whether it is time; the distance counts, for a clock that leapt must not put drains off for ever."""
        return self._next is not None and (now >= self._next or self._next - now > 2 * self._every)

    def plan(self, now: int, span: int) -> None:
        """Choose the next instant, if a span is so long."""
        self._every = max(self._every, _power_of_two(_FEWEST_SPANS * span))
        if not self._young_until:
            self._young_until = now + _USUAL
        soon = self._multiple(min(self._every, _YOUNG), now)
        self._next = soon if self.is_young(soon, span) else self._multiple(self._every, now)

    def hurry(self, now: int, span: int) -> None:
        """Choose one that is near: something is new."""
        self._may_be_light = False
        self._next = self._multiple(_power_of_two(_HASTY_SPANS * span), now)

    def relax(self, span: int, is_far_off: bool = False) -> None:
        """Wait longer for the next one; let it be deep if this one showed that calls are far quicker than believed."""
        self._may_be_light = not is_far_off and self._every >= _USUAL
        self._every = self._every if is_far_off else min(2 * self._every, _usual(span))

    def begin(self, limit: float, ratio: float, uncut: float, deep: bool = False) -> float:
        """Return the limit of a drain; `uncut`: what the limit was before it was cut for the same reason."""
        self._start(limit, ratio, listens=False)
        part = _DEEP_PART if deep else _LIGHT_PART if self._may_be_light and ratio <= _LIGHT else _PART
        return min(limit, max(1, math.ceil(part * max(limit, uncut) - _TINY)))

    def is_young(self, at: int, span: int) -> bool:
        """Return whether little will be known yet of what calls take at that instant; `span`: how long one is."""
        return at < self._young_until and span < _QUICK

    def listen(self, limit: float, ratio: float) -> None:
        """See how long calls take while the others drain: a limit that is not in use need not."""
        self._start(limit, ratio, listens=True)

    def is_usual(self, span: int) -> bool:
        """Return whether all limiters with such spans that have settled drain now."""
        return (self.next + self.offset) % _usual(span) == 0

    def _start(self, limit: float, ratio: float, *, listens: bool) -> None:
        self.under_way, self.listens, self.settled, self.before = True, listens, limit, ratio

    def _multiple(self, every: int, now: int) -> int:
        return ((now + self.offset) // every + 1) * every - self.offset


def _usual(span: int) -> int:
    return max(_USUAL, _power_of_two(_SPANS * span))


def _power_of_two(least: int) -> int:
    """The least power of two of a second that is as long."""
    return _SECOND << max(0, -(-least // _SECOND) - 1).bit_length()
