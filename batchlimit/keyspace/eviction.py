"""Which keys stay in memory: a CLOCK cache evicts an approximately least recently used key."""

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

_LOOKS = 16
"""Entries that the hand examines for one newcomer, at most: no caller waits for a whole round."""
_FEW = 4
"""Entries that the hand examines at least, and whenever one leaves. More than one, so that free places get fewer."""
_GONE = -1


class Used(Protocol):
    """What tells whether an entry was used."""

    @property
    def uses(self) -> int:
        """A number, 0 or more, that each use changes."""
        ...


class Evictable(Protocol):
    """What a ClockCache keeps."""

    seen: int
    """Belongs to the cache: the value of `tokens.uses` when the hand last examined the entry."""

    @property
    def tokens(self) -> Used:
        """What its callers use."""
        ...


K = TypeVar("K", bound=Evictable)


class ClockCache(Generic[K]):
    """Keeps at most `most` entries. It evicts first the entries that were not used since the hand last examined them.

    A hit does not touch the cache: the hand compares `uses` with what it saw before. The hand moves with each newcomer,
    so it knows which entries are used before the cache is full. An entry that leaves by itself leaves a free place,
    which the hand removes; there are about as many free places as entries, at most. (An OrderedDict has no free places,
    but stood still for 28 ms when one of 100,000 entries had to grow.)
    """

    __slots__ = ("_kept", "_most", "_places")

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = 0
        self._places: deque[K] = deque()  # the hand is at the left end

    def __len__(self) -> int:
        return self._kept

    def enter(self, newcomer: K, evict: Callable[[K], bool]) -> None:
        """Add a newcomer, last. `evict(entry)` makes room: it returns whether that entry could be evicted, and was."""
        used = []
        for looks in range(min(_LOOKS, len(self._places))):
            if looks >= _FEW and not self._is_full:
                break
            one = self._places.popleft()
            if one.seen == _GONE:
                continue
            is_quiet, one.seen = _look(one)
            if not (is_quiet and self._is_full and evict(one)):
                self._places.append(one)
                used.append(one)
        for one in used:  # if all are in use, any may be evicted
            if self._is_full:
                evict(one)
        newcomer.seen = newcomer.tokens.uses
        self._places.append(newcomer)
        self._kept += 1

    def leave(self, one: K) -> None:
        """Remove an entry, once."""
        if one.seen != _GONE:
            one.seen = _GONE
            self._kept -= 1
        self._tidy()

    @property
    def _is_full(self) -> bool:
        return self._kept >= self._most

    def _tidy(self) -> None:
        """Remove free places; the hand passes entries without examining them."""
        for _ in range(min(_FEW, len(self._places))):
            if self._places[0].seen == _GONE:
                self._places.popleft()
            else:
                self._places.rotate(-1)


def _look(one: K) -> tuple[bool, int]:
    """Return whether an entry was not used since it was last examined, and its `uses` now."""
    uses = one.tokens.uses
    return one.seen == uses, uses
