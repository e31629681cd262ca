"""How many tokens the waiters ahead of one ask for, and which of them cannot be served in time."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from batchlimit.reservoir.waiter import Waiter


class Horizon(NamedTuple):
    """Which waiters are late: their deadline is before `until`, or before the tokens up to theirs are refilled."""

    until: float
    """The instant before which nobody is served."""
    since: float
    """The instant at which the refill of all of that began: earlier than now, where something is there already."""
    seconds: float = 0.0
    """The time in which a token is refilled, at the least."""


NONE_LATE = Horizon(-math.inf, -math.inf)
"""Nobody is late."""
ALL_LATE = Horizon(math.inf, math.inf)
"""All are late, also who would wait for ever."""


class _Node(NamedTuple):
    """What there is to know of some waiters whose numbers follow each other."""

    tokens: int
    """What they ask for."""
    latest: float
    """By how much the seconds from the first of them up to one exceed that one's deadline, at the most."""
    soonest: float
    """The earliest of their deadlines."""


_Level = dict[int, _Node]


class Depths:
    """A tree over the numbers of the waiters: each node is the sum of two of the level below.

    A question takes as many steps as the number of waiters has binary digits. A waiter that joins or leaves is only
    noted. `update` takes in all changes before the next question: neighbours that change together share most of the
    work.
    """

    __slots__ = ("_changed", "_levels", "seconds")

    def __init__(self, numbers: Iterable[int], seconds: float) -> None:
        """`numbers` are those of all waiters; `seconds` is the time in which a token is refilled, at the least."""
        self._levels: list[_Level] = [{}]
        self._changed = set(numbers)
        self.seconds = seconds

    def changed(self, number: int) -> None:
        """Note that a waiter joined, or asks for another number of tokens."""
        self._changed.add(number)

    def left(self, number: int) -> None:
        """Note that a waiter left."""
        if number in self._levels[0]:
            self._changed.add(number)
        else:
            self._changed.discard(number)

    def update(self, claims: Mapping[int, Waiter]) -> None:
        """Take in what was noted."""
        leaves = self._levels[0]
        for number in self._changed:
            if (waiter := claims.get(number)) is None:
                leaves.pop(number, None)
            else:
                latest = waiter.cost * self.seconds - waiter.deadline
                leaves[number] = _Node(waiter.cost + waiter.beyond, latest, waiter.deadline)
        changed: Iterable[int] = self._changed
        height = 0
        while len(self._levels[height]) > 1:
            changed = self._update_above(height, changed)
            height += 1
        del self._levels[height + 1 :]
        self._changed.clear()  # last: what is interrupted before is done again

    def ahead_of(self, number: int) -> int:
        """Return what all before this number ask for, in tokens."""
        tokens = 0
        for level in self._levels[:-1]:
            if number & 1 and (left := level.get(number - 1)) is not None:
                tokens += left.tokens
            number >>= 1
        return tokens

    def first_late(self, horizon: Horizon) -> int | None:
        """Return the first number whose waiter is late; None: all are in time."""
        for number, top in self._levels[-1].items():
            if _is_late(top, 0.0, horizon):
                return self._find(number, horizon)
        return None

    def _find(self, number: int, horizon: Horizon) -> int:
        """Go down from the top: to the left, where somebody is late there."""
        ahead = 0.0
        for level in reversed(self._levels[:-1]):
            number *= 2
            if (left := level.get(number)) is None:
                number += 1
            elif not _is_late(left, ahead, horizon):
                number += 1
                ahead += left.tokens * self.seconds
        return number

    def _update_above(self, height: int, changed: Iterable[int]) -> set[int]:
        """Sum up the changed nodes of a level, and return the numbers of the sums; of all, if nobody did before."""
        level, is_new = self._levels[height], height + 1 == len(self._levels)
        above = {} if is_new else self._levels[height + 1]
        numbers = {number >> 1 for number in (level if is_new else changed)}
        for number in numbers:
            left, right = level.get(2 * number), level.get(2 * number + 1)
            if left is not None and right is not None:
                latest = max(left.latest, left.tokens * self.seconds + right.latest)
                above[number] = _Node(left.tokens + right.tokens, latest, min(left.soonest, right.soonest))
            elif (only := left or right) is not None:
                above[number] = only
            else:
                above.pop(number, None)
        if is_new:
            self._levels.append(above)  # when it is whole: see `update`
        return numbers


def _is_late(node: _Node, ahead: float, horizon: Horizon) -> bool:
    return node.soonest < horizon.until or horizon.since + ahead + node.latest > 0.0
