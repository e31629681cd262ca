"""Dormant keys: nobody uses them now. A snapshot of each is kept until somebody does, or until it is idle."""

import math
import struct
from collections import deque
from typing import NamedTuple

_FORM = struct.Struct("9d")
"""A double holds every one of them exactly: the largest are an epoch (us) and a level, below 2^53 for centuries."""


class KeySnapshot(NamedTuple):
    """Instants are of the instance's clock, the rest as `Demand`, `Terms` and `Usage` have it."""

    used: float
    """When somebody last asked for a token."""
    demand: float
    """Tokens per second, as they were `counted_at`."""
    counted_at: float
    last_want: float
    epoch: float
    level: float
    active_instances: float
    round_trip: float
    heard: float
    """When the bucket last answered; -inf: never."""

    def pack(self) -> bytes:
        """Return it in 105 bytes, of which the garbage collector sees nothing: as a tuple of floats it had 336."""
        return _FORM.pack(*self)

    @classmethod
    def unpack(cls, packed: bytes) -> "KeySnapshot":
        """Return what was packed."""
        return cls(*_FORM.unpack(packed))


_SHELVES = 8
"""In how many parts the time is divided, and the room, after which a key leaves: so exact is the order."""
_MOST_SHELVES = 2 * _SHELVES
"""Who looks for a key looks at no more: it takes 40 ns each."""
_AT_ONCE = 256
"""How many keys are forgotten without a break: 0.1 ms. A million of them would stop the process for 0.4 s."""
_BREAK = 0.001
"""Seconds between two such lots, for whoever else wants to run."""


class Shelf:
    """Keys that came to rest one after the other; at `idle_at` (instance clock) the last of them is idle."""

    __slots__ = ("idle_at", "memos", "since")

    def __init__(self, now: float) -> None:
        self.memos: dict[str, bytes] = {}
        self.since = now
        self.idle_at = -math.inf


class DormantKeys:
    """Memos by key. They leave `idle_after` seconds after their last use, or an eighth of that later.

    One that has to make room is of the eighth that came first. No order is kept within a shelf, so that nothing is
    stored for it: a place in a queue, and a plan of when to leave, would take as much as the snapshot. And where a
    million may be there, the dict of a shelf stands still for 5 ms at the most when it grows: one for all took 70.
    """

    __slots__ = ("_idle_after", "_room", "_shelves")

    def __init__(self, idle_after: float, most: int) -> None:
        """`most` is how many keys there are to be at once, awake ones included."""
        self._idle_after = idle_after
        self._room = max(1, most // _SHELVES)
        self._shelves: deque[Shelf] = deque()  # the newest is first

    def __repr__(self) -> str:
        return f"<Rest of {len(self)} keys on {len(self._shelves)} shelves>"

    def __len__(self) -> int:
        # No count of our own: an interrupt between a change and its count would leave it wrong for good.
        return sum(len(shelf.memos) for shelf in list(self._shelves))

    def put(self, key: str, snapshot: KeySnapshot, now: float) -> None:
        """Let a key rest that has no snapshot here; one that is idle by now has nothing to wait for."""
        if snapshot.used + self._idle_after <= now:
            return
        shelf = self._shelf(now)
        shelf.memos[key] = snapshot.pack()
        shelf.idle_at = max(shelf.idle_at, snapshot.used + self._idle_after)

    def take(self, key: str) -> KeySnapshot | None:
        """Return the snapshot of a key that is needed again, and keep it no longer."""
        for shelf in list(self._shelves):
            if (packed := shelf.memos.pop(key, None)) is not None:
                return KeySnapshot.unpack(packed)
        return None

    def make_room(self, keys: int) -> None:
        """Forget so many, those first that came first; or a few of them, if they are many: there is a next time."""
        for _ in range(min(keys, _SHELVES, len(self))):
            self._drop_one()

    def forget_idle(self, now: float) -> float:
        """Forget those that are idle, or some of them; return the instant at which to come again, inf: no need."""
        for _ in range(_AT_ONCE):
            if self.due > now:
                break
            self._drop_one()
        return max(self.due, now + _BREAK)

    @property
    def due(self) -> float:
        """The instant at which there is something to forget; inf: never, or not while nobody comes."""
        oldest = self._oldest()
        return math.inf if oldest is None else oldest.idle_at

    def clear(self) -> None:
        """Forget all."""
        self._shelves.clear()

    def _shelf(self, now: float) -> Shelf:
        """Return the newest one, making it if there is none or it has been there, or filled, for long enough."""
        if not self._shelves:
            self._shelves.append(Shelf(now))
        newest = self._shelves[0]
        is_over = now - newest.since > self._idle_after / _SHELVES or len(newest.memos) >= self._room
        if is_over and len(self._shelves) < _MOST_SHELVES:
            self._shelves.appendleft(newest := Shelf(now))
        return newest

    def _drop_one(self) -> None:
        if (oldest := self._oldest()) is not None:
            oldest.memos.popitem()

    def _oldest(self) -> Shelf | None:
        """Return the first shelf that is not empty, if there is one."""
        while self._shelves and not self._shelves[-1].memos:
            self._shelves.pop()
        return self._shelves[-1] if self._shelves else None
