"""Which keys stay in memory: a ring of them, and a hand that goes round."""

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

_LOOKS = 16
"""At how many the hand looks for one that comes: so nobody ever waits for it to go all the way round."""
_FEW = 4
"""At how many it looks at the least, and whenever one leaves: more than one, so that places of the gone get fewer."""
_GONE = -1


class Evictable(Protocol):
    """What has a place in the ring."""

    seen: int
    """The ring's own: what the hand saw when it last came by."""

    @property
    def uses(self) -> int:
        """A figure from 0 on that is another one after each use."""
        ...


K = TypeVar("K", bound=Evictable)


class ClockCache(Generic[K]):
    """What is kept, at most `most`: who was not used since the hand last came by leaves first.

    A use tells the ring nothing, so that a hit has nothing to pay; the hand compares what it sees with what it saw. It
    moves on whenever somebody comes: when there is no room any more, it knows already who is used. Who leaves
    of itself leaves a place behind, which the hand takes out; of those there are about as many as are kept, at most.
    (An OrderedDict would need none, and stood still for 28 ms when one of 100,000 had to grow.)
    """

    __slots__ = ("_kept", "_most", "_places")

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = 0
        self._places: deque[K] = deque()  # the hand is at the API

    def __repr__(self) -> str:
        return f"<Ring of {self._kept}, {self._most} at most>"

    def __len__(self) -> int:
        return self._kept

    def enter(self, newcomer: K, evict: Callable[[K], bool]) -> None:
        """Let a newcomer in, last. `evict` is asked for room: it says whether that one could, and did, leave."""
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
        for one in used:  # where all are in use it is anybody's turn
            if self._is_full:
                evict(one)
        newcomer.seen = newcomer.uses
        self._places.append(newcomer)
        self._kept += 1

    def leave(self, one: K) -> None:
        """Have no place any more; once."""
        one.seen = _GONE
        self._kept -= 1
        self._tidy()

    def clear(self) -> None:
        """Have all of them leave."""
        self._places.clear()
        self._kept = 0

    @property
    def _is_full(self) -> bool:
        return self._kept >= self._most

    def _tidy(self) -> None:
        """Take out places of the gone; the hand passes others without a look."""
        if self._kept == 0:
            self._places.clear()
        for _ in range(min(_FEW, len(self._places))):
            if self._places[0].seen == _GONE:
                self._places.popleft()
            else:
                self._places.rotate(-1)


def _look(one: K) -> tuple[bool, int]:
    """Return whether somebody was not used since the last look, and what there is to be seen now."""
    uses = one.uses
    return one.seen == uses, uses
