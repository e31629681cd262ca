"""The order in which one caller acquires several keys, without a deadlock."""

from collections.abc import Sequence

_ROUNDS = 3
"""How often a caller lets go of everything before it begins to hold what it has while it waits."""


class Turns:
    """Says which key a caller acquires next, and whether it may wait there.

    At first a caller waits only while it holds nothing. If the next key has no room, it lets go of all that it holds,
    and waits at that key. So a full key keeps no place of another key from others. But if every key is full for long,
    such a caller might never get them all: by the time it has one, another one is taken. So after three such rounds it
    waits with what it holds, and acquires in the order of the limits. All callers do so in the same order: two of them
    never wait for each other.
    """

    __slots__ = ("_first", "_keys", "_rounds")

    def __init__(self, keys: Sequence[str]) -> None:
        """`keys` are in the order of the limits."""
        self._keys, self._first, self._rounds = tuple(keys), keys[0], 0

    def __repr__(self) -> str:
        return f"<Turns {self.order()}, round {self._rounds}>"

    def order(self) -> tuple[str, ...]:
        """Return the keys in the order in which to acquire them in this round."""
        if self._holds:
            return self._keys
        return (self._first, *(key for key in self._keys if key != self._first))

    def may_wait(self, key: str) -> bool:
        """Whether the caller waits at this key, if there is no room."""
        return self._holds or key == self._first

    def turned_away(self, key: str) -> None:
        """Begin the next round: this key had no room, and what was held is given back."""
        self._first = key
        self._rounds += 1

    @property
    def _holds(self) -> bool:
        return self._rounds >= _ROUNDS
