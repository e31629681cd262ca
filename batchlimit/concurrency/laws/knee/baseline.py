"""How long calls take compared with calls that do not queue, whether that is too long, and whether to believe it."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

_CERTAIN = 40
"""Calls whose averages are taken at their word. Of fewer the median alone counts, and moves a baseline less: by the
root, as far as it is true."""
_BIAS, _FEW = 3.0, 5
"""Times that the second span of an operation may be longer than its first to correct it; of how many calls at least."""
_MOST = 3.0
"""Times what a span just showed that a baseline may be: whatever a queue does, it does not make calls quicker."""

_STILL = (0.75, 1.3)
"""Ratios in a drain that chance may make of a baseline that is right."""
_STILL_RISE, _STILL_FALL, _MOVE, _STOOD_FOR = 0.15, 0.4, 0.9, 300
"""How far a baseline of slow calls goes with a drain that shows about the same, and any with one that shows more; calls
of drains that one of quick calls stands for at most: each counts alike, until a drain brings news."""
_DOUBTED = 0.9
"""What is left of a baseline after a drain showed a longer time that was not believed: it may be a queue of others who
do not drain now. If all give way a little, it ends."""
_SHOWN = 10
"""Calls of a drain that are taken at their word where they were quicker: no queue makes calls quicker."""
_TRIM = 0.1
"""The part of the calls of a span, at either end, that the mean leaves out."""
_TAIL, _TELLS = 0.1, 8
"""How far a tail goes with each span; calls of a span from which it tells of one."""
_RARE = 0.05
"""The least part of a drain in which a call that it shows could begin: one alone is not to stand for a hundred."""


def _median(ordered: Sequence[int], within: int) -> float:
    if not within:
        return float(ordered[(len(ordered) - 1) // 2])
    # The longer a call, the earlier it had to begin to be over in time: so it stands for more of those that began.
    begun = list(accumulate(1 / max(1 - time / within, _RARE) for time in ordered))
    return float(ordered[bisect_left(begun, begun[-1] / 2)])


def _mean(ordered: Sequence[int]) -> float:
    cut = int(_TRIM * len(ordered))
    return sum(ordered[cut : len(ordered) - cut]) / (len(ordered) - 2 * cut)


class SpanTimes(NamedTuple):
    """What a span showed against the baselines."""

    counts: Mapping[str, int]
    """How many calls of each operation."""
    averages: Sequence[Mapping[str, float]]
    """Their median times, and their mean times (ns)."""
    ratio: float
    """How many times as long as without a queue the same calls took: 1 where none waited."""


class Baselines:
    """The time without a queue of each operation, in ns, learnt from what spans show.

    A median and a mean, never a minimum: one lucky call must not set a mark that no other can reach. Where times differ
    a lot, one of the two may be far off by chance. So the one that alarms less counts; of few calls the median. All
    calls wait as long in a queue, short or long ones. So a median that doubles is little where others take far longer:
    a tail is added to it and to its baseline, by which means are above medians.
    """

    __slots__ = ("_fresh", "_stands_for", "_tails", "_times")

    def __init__(self) -> None:
        self._times: tuple[dict[str, float], ...] = ({}, {})
        self._tails: dict[str, float] = {}
        self._fresh, self._stands_for = set[str](), 0  # calls of drains since the last news

    def __repr__(self) -> str:
        return f"Baselines({', '.join(f'{name!r}: {time / 1e6:.3f} ms' for name, time in self._times[0].items())})"

    @property
    def seconds(self) -> dict[str, float]:
        """The medians by operation, in seconds."""
        return {name: time / 1e9 for name, time in self._times[0].items()}

    @property
    def longest(self) -> float:
        """The median of the slowest operation, in ns; 0 as long as none is known."""
        return max(self._times[0].values(), default=0.0)

    def read(self, times: Mapping[str, Sequence[int]], within: int = 0, is_new: bool = True) -> SpanTimes:
        """Compare a span with the baselines; an operation that was never seen before sets its own.

        Operations count by the work that they bring: what takes ten times as long fills ten times as many places.
        `within`: in how many ns calls had to begin and end to be counted (default 0: no call was left out);
        `is_new`: whether it is the first look at the span.
        """
        counts = {name: len(each) for name, each in times.items() if each}
        if not counts:
            return SpanTimes({}, (), 1.0)
        ordered = {name: sorted(times[name]) for name in counts}
        medians = {name: _median(each, within) for name, each in ordered.items()}
        averages = [medians, {name: _mean(each) for name, each in ordered.items()}]
        if is_new:
            self._meet(averages, counts)
        tail = sum(n * self._tails.get(name, 0.0) for name, n in counts.items())
        ratios = [
            (sum(n * shown[name] for name, n in counts.items()) + more)
            / (sum(n * times[name] for name, n in counts.items()) + more)
            for times, shown, more in zip(self._times, averages, (tail, 0.0), strict=True)
        ]
        return SpanTimes(counts, averages, min(ratios) if sum(counts.values()) >= _CERTAIN else ratios[0])

    def learn_tails(self, times: Mapping[str, Sequence[int]]) -> None:
        """Learn by how much means are above medians, from a span that is no drain: that is too short to tell."""
        for operation, each in times.items():
            if len(each) >= _TELLS:
                tail = max(0.0, sum(each) / len(each) - _median(sorted(each), 0))
                self._tails[operation] = (1 - _TAIL) * self._tails.get(operation, tail) + _TAIL * tail

    def move(self, reading: SpanTimes, rise: float, fall: float, certain: int = _CERTAIN) -> None:
        """Go such a part of the way up, or down, to what a span showed: less far for fewer calls than `certain`."""
        for times, shown in zip(self._times, reading.averages, strict=True):
            for operation, time in shown.items():
                gap = time - times[operation]
                part = (rise if gap > 0 else fall) * math.sqrt(min(1.0, reading.counts[operation] / certain))
                times[operation] = min(times[operation] + gap * part, _MOST * time)

    def learn_drain(self, reading: SpanTimes, may_rise: bool, is_by_chance: bool, is_quick: bool) -> float:
        """Go towards what a drain showed; return by how much the longest one changed, as a factor."""
        before, count = self.longest, sum(reading.counts.values())
        is_news, part = not _STILL[0] <= reading.ratio <= _STILL[1], count / (self._stands_for + count)
        self._stands_for = 0 if is_news else min(_STOOD_FOR, self._stands_for + count)
        if self.is_far_off(reading.ratio):
            self.move(reading, 0.0, 1.0, _CERTAIN if is_by_chance else _SHOWN)
        elif is_quick and not is_news:  # to the mean of all calls of drains since the last news; up by small steps
            self.move(reading, min(_STILL_RISE, part) if may_rise else 0.0, part, certain=1)
        else:
            rise, fall = (_MOVE, _MOVE) if is_news else (_STILL_RISE, _STILL_FALL)
            self.move(reading, rise if may_rise else 0.0, fall)
            if is_news and not may_rise:
                for times in self._times:
                    times.update((operation, _DOUBTED * time) for operation, time in times.items())
        return self.longest / before

    @staticmethod
    def is_far_off(ratio: float) -> bool:
        """Return whether calls were so much quicker in a drain that the next one may show even more."""
        return ratio < _STILL[0]

    def _meet(self, averages: Sequence[Mapping[str, float]], counts: Mapping[str, int]) -> None:
        medians = self._times[0]
        for operation, median in averages[0].items():
            if operation in self._fresh and counts[operation] < _FEW:
                continue
            is_new = operation not in medians
            # Of its first calls the short ones end first. Where they took much longer next, that was a queue.
            if is_new or (operation in self._fresh and median < _BIAS * medians[operation]):
                for times, shown in zip(self._times, averages, strict=True):
                    times[operation] = shown[operation]
            (self._fresh.add if is_new else self._fresh.discard)(operation)


_SLACK, _WIDEST = 1.2, 3.0
"""Calls in line that c workers are allowed, in square roots of c: arrivals are random, and a shorter line runs dry; and
the most that this allows, at limits of 1 to 3, where it stands for nothing and is not even."""
_ROOM, _LITTLE_ROOM = 0.75, 0.95
"""Parts of the line that is allowed, up to which a limit grows fast, and up to which it grows at all."""
_GENTLE, SHARPEST, _FAR = 0.95, 0.6, 1.2
"""What is left of a limit, at most and at least; times the allowed ratio from which gently is too slow."""


class RatioBand:
    """Judges a ratio: the time that calls took over the time that they take without a queue.

    A share 1 - 1 / ratio of the calls under way is in line, by Little's law. Each limiter is allowed a line of 1.2
    sqrt(L). The ratio is common to all that share a backend. So a larger limit finds its line too long, and a smaller
    one finds room, until they are alike. `is_even`: whether limits of 1 to 3 are to be alike too: they count one more.
    """

    __slots__ = ("_tolerance", "is_even")

    def __init__(self, tolerance: float) -> None:
        self._tolerance, self.is_even = tolerance, False

    def allowed(self, limit: float) -> float:
        """Return the largest ratio at which the limit holds: the tolerance, or what a line of 1.2 sqrt(L) makes."""
        served = 1 - _SLACK / math.sqrt(limit + self.is_even)  # as a part of what is under way
        return max(self._tolerance, 1 / (served if self.is_even else max(1 / _WIDEST, served)))

    def has_room(self, ratio: float, limit: float, for_few: bool = False) -> bool:
        """Return whether so few are in line that more may come, or at least a few more."""
        line = (1 - 1 / ratio) / (1 - 1 / self.allowed(limit))  # as a part of what is allowed
        return line <= (_LITTLE_ROOM if for_few else _ROOM)

    def is_far(self, ratio: float, limit: float) -> bool:
        """Return whether far more are in line than may be."""
        return ratio > _FAR * self.allowed(limit)

    def factor(self, ratio: float, limit: float, lasts: bool) -> float:
        """Return what to multiply the limit by: a span alone may be a pause, which is not answered sharply."""
        if ratio <= self.allowed(limit):
            return 1.0
        # The root goes half the way, for the baseline may be wrong.
        return max(SHARPEST, math.sqrt(self.allowed(limit) / ratio)) if lasts else _GENTLE


_NEWS, _CALM = 1.3, 1.15
"""Ratios in a drain from which on calls took longer, and up to which they did not."""
_RESPONSE, _EXPLAINED = 0.67, 0.8
"""What is left of a ratio in a drain that worked, at most; and the part of what calls took longer that a drain must
remove to be known as one that works, of a queue of 20 %."""
_CALM_NS = 3 * 10**9
"""How long calls must have taken no longer than they should: what comes then all of a sudden is another matter."""
_BELIEFS, _DOUBTS = 2, 32
"""Drains in a row that may be believed; drains that must say the same to be believed without a reason."""


class Trust:
    """Lets a baseline rise if drains are known to work.

    Where a limiter is alone, or all limiters drain at once, a drain removes the queue: what is left is no queue. Where
    the others do not drain, it removes nothing, and to believe it would take the queue for the time that calls take.
    Each such belief feeds the next one, until all are lost. So it takes one of these:

    - it is one of the first two such drains: the first calls of all are too few to tell how long calls take
    - it is one of two after a drain that did remove a queue, or after 3 s of calm
    - 32 drains in a row say the same

    Calm counts once there was some while the limit was not in use. While it is in use, calls take no longer than they
    should as well where a baseline is too high.
    """

    __slots__ = ("_beliefs", "_calm_ns", "_doubts", "has_been_calm")

    def __init__(self) -> None:
        self._calm_ns = self._doubts = 0
        self._beliefs = _BELIEFS
        self.has_been_calm = False
        """Whether there ever was calm: without it, what is known of calls stems from a queue, maybe."""

    def calm(self, length: int, is_idle: bool) -> None:
        """Note a span without a queue, so many ns long; `is_idle`: whether the limit was not in use."""
        self._calm_ns += length
        if self._calm_ns > _CALM_NS:
            self.has_been_calm = self.has_been_calm or is_idle
            if self.has_been_calm:
                self._beliefs = _BELIEFS

    def queued(self) -> None:
        self._calm_ns = 0

    @staticmethod
    def responded(before: float, ratio: float) -> bool:
        """Return whether a drain changed what calls take, from `before`."""
        return ratio < _RESPONSE * before

    @staticmethod
    def is_news(ratio: float) -> bool:
        """Return whether calls took longer in a drain than they should."""
        return ratio > _NEWS

    def drained(self, before: float, ratio: float) -> bool:
        """Judge a drain by the ratios before it and in it; return whether a baseline may rise."""
        unexplained = self.is_news(ratio) and not self.responded(before, ratio)
        if unexplained and not self._beliefs:
            self._doubts += 1
            if self._doubts >= _DOUBTS:
                self._doubts, self._beliefs = 0, 1
        elif not self.is_news(ratio):
            self._doubts = 0
        is_explained = before >= 1.2 and before - ratio >= _EXPLAINED * (before - 1)
        if ratio <= _CALM and (self.responded(before, ratio) or is_explained):
            self._beliefs = _BELIEFS
        believed = self._beliefs > 0
        if unexplained and believed:
            self._beliefs -= 1
            self._calm_ns = 0
        return believed
