"""Whether calls that take longer in a drain as well do so without a queue. One of many limiters cannot see that."""

_NEWS, _CALM = 1.3, 1.15
"""Ratios in a drain from which on calls took longer, and up to which they did not."""
_RESPONSE = 0.67
"""What is left of a ratio in a drain that worked, at most."""
_EXPLAINED = 0.8
"""The part of what calls took longer that a drain must remove to be known as one that works; of a queue of 20 %."""
_CALM_NS = 3 * 10**9
"""How long calls must have taken no longer than they should: what comes then all of a sudden is another matter."""
_BELIEFS = 2
_DOUBTS, _MORE_DOUBTS = 32, 4
"""Drains that must say the same to be believed without a reason; each time four times as many."""


class Trust:
    """Lets a baseline rise if drains are known to work.

    Where a limiter is alone, or all limiters drain at once, a drain removes the queue: what is left is no queue. Where
    the others do not drain, it removes nothing, and to believe it would take the queue for the time that calls take.
    Each such belief feeds the next one, until all are lost. So it takes one of these:

    - it is one of the first two such drains: the first calls of all are too few to tell how long calls take
    - it is one of two after a drain that did remove a queue, or after 3 s of calm
    - 32 drains in a row say the same; then 128 and so on, until there is calm

    Calm counts from when the limit was not in use on: calls take no longer than they should as well where a baseline is
    too high.

    """

    __slots__ = ("_beliefs", "_calm_ns", "_doubts", "_has_been_calm", "_stubbornness")

    def __init__(self) -> None:
        self._calm_ns = self._doubts = 0
        self._beliefs = _BELIEFS
        self._stubbornness = _DOUBTS
        self._has_been_calm = False

    def __repr__(self) -> str:
        return f"<Trust: {self._beliefs} beliefs, {self._doubts} of {self._stubbornness} doubts>"

    @property
    def has_been_calm(self) -> bool:
        """Whether there ever was calm: without it, what is known of calls stems from a queue, maybe."""
        return self._has_been_calm

    def calm(self, length: int, is_idle: bool) -> None:
        """Note a span without a queue, so many ns long; `is_idle`: whether the limit was not in use."""
        self._calm_ns += length
        if self._calm_ns > _CALM_NS:
            self._has_been_calm = self._has_been_calm or is_idle
            if self._has_been_calm:
                self._beliefs = _BELIEFS
            if is_idle:
                self._stubbornness = _DOUBTS

    def crowded(self) -> None:
        """Note a span with a queue."""
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
            self._doubt()
        elif not self.is_news(ratio):
            self._doubts = 0
        if ratio <= _CALM and (self.responded(before, ratio) or self._explains(before, ratio)):
            self._beliefs = _BELIEFS
        believed = self._beliefs > 0
        if unexplained and believed:
            self._beliefs -= 1
            self._calm_ns = 0
        return believed

    def _doubt(self) -> None:
        self._doubts += 1
        if self._doubts >= self._stubbornness:
            self._doubts, self._beliefs = 0, 1
            self._stubbornness *= _MORE_DOUBTS

    @staticmethod
    def _explains(before: float, ratio: float) -> bool:
        return before >= 1.2 and before - ratio >= _EXPLAINED * (before - 1)
