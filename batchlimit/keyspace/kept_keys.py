"""Which keys stay in memory: those in use, until they are evicted, and dormant ones, until they are idle."""

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from batchlimit.keyspace.census import BaseKeyEntry
from batchlimit.reservoir.bucket_view import KeySnapshot

_LOOKS = 16
"""Entries that the hand examines for one newcomer, at most: no caller waits for a whole round."""
_FEW = 4
"""Entries that the hand examines at least, and whenever one leaves. More than one, so that free places get fewer."""
_GONE = -1

_SHELVES = 4
"""Parts into which `idle_after` and the room are divided: a key leaves in the order of its shelf."""
_MOST_SHELVES = 2 * _SHELVES
"""Shelves at most: a search looks at each of them, which takes 80 ns where there are 100,000 keys, as in no cache."""
_FEW_LEAVE = 8
"""So many keys leave at once, where there are too many."""
_AT_ONCE = 256
"""Keys that are forgotten without a pause: 0.1 ms. A million of them would stop the process for 0.4 s."""
_BREAK = 0.001
"""Seconds between two such lots, in which other threads and tasks run."""


class Shelf:
    """Snapshots of keys that became dormant one after the other; all are idle at `idle_at` (instance clock)."""

    __slots__ = ("idle_at", "snapshots", "until")

    def __init__(self, until: float) -> None:
        """`until`: the instant from which on keys come to another shelf."""
        self.snapshots: dict[str, bytes] = {}
        self.until = until
        self.idle_at = -math.inf


class DormantKeys:
    """Snapshots by key. They leave `idle_after` seconds after the last use of the key, or a quarter of that later.

    If there is no room, a key of the oldest shelf leaves. A shelf keeps no order, so that a key costs its snapshot
    alone: a place in a queue would cost as much again. The dict of a shelf stands still for 10 ms at most when it
    grows, with a million keys; a single dict for all took 70 ms.
    """

    __slots__ = ("_idle_after", "_most", "_others", "_room", "_shelves")

    def __init__(self, idle_after: float, most: int) -> None:
        """`most` bounds the keys in memory, those in use included; `idle_after` is in seconds."""
        self._idle_after, self._most, self._room = idle_after, most, max(1, most // _SHELVES)
        self._shelves: tuple[Shelf, ...] = (Shelf(-math.inf),)  # the newest is first
        self._others = 0  # no fewer than there are on all others; counted anew with each shelf

    def __len__(self) -> int:
        # Not a counter: an interrupt between a change and its count would leave it wrong for ever.
        return sum([len(shelf.snapshots) for shelf in self._shelves])

    def put(self, key: str, snapshot: KeySnapshot, now: float, in_use: int = 0) -> None:
        """Keep the snapshot of a key that has none here, unless the key is idle by now."""
        self.keep({key: snapshot.pack()}, snapshot.used, now, in_use)

    def keep(self, packed: dict[str, bytes], used: float, now: float, in_use: int = 0) -> float:
        """As `put`, for packed snapshots of keys last `used` together; return when to forget them (inf: no need)."""
        if (idle_at := used + self._idle_after) <= now or not packed:
            return math.inf
        shelf = self._shelves[0]
        there = len(shelf.snapshots)
        if there + self._others + in_use + len(packed) > self._most:
            packed = dict(list(packed.items())[-max(1, self._most - in_use) :])
            self.make_room(in_use, len(packed))
        if (now > shelf.until or there >= self._room) and len(self._shelves) < _MOST_SHELVES:
            shelf, there, self._others = Shelf(now + self._idle_after / _SHELVES), 0, len(self)
            self._shelves = (shelf, *[each for each in self._shelves if each.snapshots])
        shelf.snapshots.update(packed)
        if idle_at > shelf.idle_at:
            shelf.idle_at = idle_at
        return math.inf if there else idle_at

    def look_up(self, key: str) -> KeySnapshot | None:
        """Return the snapshot of a key, which stays; None: there is none."""
        for shelf in self._shelves:
            if key in shelf.snapshots and (packed := shelf.snapshots.get(key)) is not None:
                return KeySnapshot.unpack(packed)
        return None

    def take(self, key: str) -> KeySnapshot | None:
        """Remove the snapshot of a key, and return it; None: there is none."""
        if (found := self.look_up(key)) is not None:
            self.forget(key)
        return found

    def forget(self, key: str) -> None:
        """Remove the snapshot of a key."""
        for shelf in self._shelves:
            shelf.snapshots.pop(key, None)

    def make_room(self, used: int, coming: int = 1) -> None:
        """Forget keys, oldest shelf first, where too many come: as many as come, or eight, so that no call waits."""
        used += coming
        if len(self._shelves[0].snapshots) + self._others + used > self._most:
            for _ in range(min(len(self) + used - self._most, max(coming, _FEW_LEAVE))):
                self._drop_one()

    def forget_idle(self, now: float) -> float:
        """Forget idle keys, or some of them; return the instant at which to come again (inf: no need)."""
        for _ in range(_AT_ONCE):
            if self.due > now:
                break
            self._drop_one()
        return max(self.due, now + _BREAK)

    @property
    def due(self) -> float:
        """The instant at which there is something to forget; inf: never, or not as long as no key becomes dormant."""
        oldest = self._oldest()
        return math.inf if oldest is None else oldest.idle_at

    def clear(self) -> None:
        """Forget all keys."""
        self._shelves = (Shelf(-math.inf),)

    def _drop_one(self) -> None:
        if (oldest := self._oldest()) is not None:
            oldest.snapshots.popitem()

    def _oldest(self) -> Shelf | None:
        """Return the first shelf that is not empty, if there is one."""
        while len(self._shelves) > 1 and not self._shelves[-1].snapshots:
            self._shelves = self._shelves[:-1]
        return self._shelves[-1] if self._shelves[-1].snapshots else None


class ClockCache:
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
        self._places: deque[BaseKeyEntry] = deque()  # the hand is at the left end

    def __len__(self) -> int:
        return self._kept

    def enter(self, newcomer: BaseKeyEntry, evict: Callable[[Any], bool]) -> None:
        """Add a newcomer, last. `evict(entry)` makes room: it returns whether that entry could be evicted, and was."""
        used = []
        for looks in range(min(_LOOKS, len(self._places))):
            if looks >= _FEW and not self._is_full:
                break
            one = self._places.popleft()
            if one.seen == _GONE:
                continue
            uses = one.tokens.uses
            is_quiet, one.seen = one.seen == uses, uses
            if not (is_quiet and self._is_full and evict(one)):
                self._places.append(one)
                used.append(one)
        for one in used:  # if all are in use, any may be evicted
            if self._is_full:
                evict(one)
        newcomer.seen = newcomer.tokens.uses
        self._places.append(newcomer)
        self._kept += 1

    def leave(self, one: BaseKeyEntry) -> None:
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
