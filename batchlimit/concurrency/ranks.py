"""Waiters by priority: who is next, and who goes first where there is no room for all."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

_SHARE = 8
"""One of so many places goes to who has waited longest, whatever the priorities: the lowest ones are served too."""


class Ranked(Protocol):
    """A waiter: its priority, and the how-manieth it is among those who came."""

    __slots__ = ()

    priority: int
    number: int


W = TypeVar("W", bound=Ranked)


class OldestTurn:
    """Says when it is the turn of who has waited longest: at one of 8 places that waiters of several priorities get."""

    __slots__ = ("_served",)

    def __init__(self) -> None:
        self._served = 0

    def __repr__(self) -> str:
        return f"<OldestTurn after {self._served} places>"

    @property
    def is_now(self) -> bool:
        """Whether the next place is for who has waited longest."""
        return self._served % _SHARE == _SHARE - 1

    def pass_on(self) -> None:
        """Count a place that went to one of several priorities."""
        self._served += 1


def kept_for_lower(length: int) -> int:
    """Return how many places of a queue of this length higher priorities leave to lower ones: an eighth."""
    return length // _SHARE


class Ranks(Generic[W]):
    """Waiters by priority, and of equal ones in the order in which they came.

    One more or less costs the same however many wait. A signal handler that raises may leave a priority behind that has
    nobody; it counts for nothing.

    Args:
        newest_first: Whether of equal priorities the newest is next.
    """

    __slots__ = ("_by_priority", "_newest_first")

    def __init__(self, newest_first: bool) -> None:
        self._newest_first = newest_first
        # Not of dicts: of these the first is as far to seek as many who came before it left.
        self._by_priority: dict[int, OrderedDict[W, None]] = {}

    def __repr__(self) -> str:
        return f"<Ranks of {len(self)}>"

    def __bool__(self) -> bool:
        return any(self._by_priority.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_priority.values()))

    def __iter__(self) -> Iterator[W]:
        return iter([waiter for each in self._by_priority.values() for waiter in each])

    def __contains__(self, waiter: W) -> bool:
        return waiter in self._by_priority.get(waiter.priority, ())

    @property
    def priorities(self) -> frozenset[int]:
        """The priorities of those who wait."""
        return frozenset(self._by_priority)

    def add(self, waiter: W) -> None:
        """Let one more wait."""
        self._by_priority.setdefault(waiter.priority, OrderedDict())[waiter] = None

    def remove(self, waiter: W) -> bool:
        """Let one wait no longer; return whether it did."""
        equals = self._by_priority.get(waiter.priority)
        if equals is None or waiter not in equals:
            return False
        equals.pop(waiter, None)
        if not equals:
            self._by_priority.pop(waiter.priority, None)
        return True

    def below(self, priority: int) -> int:
        """Return how many wait whose priority is lower."""
        return sum(len(each) for rank, each in self._by_priority.items() if rank < priority)

    def oldest(self) -> W:
        """Return who has waited longest; not if nobody waits."""
        return min((next(iter(each)) for each in self._by_priority.values() if each), key=lambda waiter: waiter.number)

    @property
    def has_one_priority(self) -> bool:
        """Whether all who wait are of one priority."""
        return len(self._by_priority) == 1

    def head(self) -> W:
        """Return who is next: of the highest priority; not if nobody waits."""
        highest = self._by_priority[max(rank for rank, each in self._by_priority.items() if each)]
        return next(reversed(highest) if self._newest_first else iter(highest))

    def from_last(self) -> Iterator[W]:
        """Yield those who wait, the lowest priority first, and of each who would be the last to be served first."""
        for _rank, equals in sorted(self._by_priority.items()):
            yield from equals if self._newest_first else reversed(equals)
