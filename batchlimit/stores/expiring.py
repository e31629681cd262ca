"""A dict whose entries are forgotten some time after their end, a few at each ask: none of them takes long."""

from collections.abc import Iterator, MutableMapping
from typing import TypeVar

T = TypeVar("T")
_EACH = 2
"""Entries that are looked at for each that an ask may add: no more are kept that have ended than others."""
_PAUSE = 1000
"""After a pause one more is looked at for each so many microseconds, for few asks may follow a flood..."""
_MOST = 250
"""... but no more than these: to forget so many buckets takes 0.6 ms."""


class Expiring(MutableMapping[str, tuple[T, int]]):
    """Things by key, each with the instant (us) at which it ends. One that has ended may still be there.

    Entries that were looked at in this round lie apart from the others.

    Example:
        >>> kept = Expiring[str]()
        >>> kept["a"], kept["b"] = ("one", 10), ("two", 30)
        >>> kept.forget(20)
        >>> dict(kept)
        {'b': ('two', 30)}
    """

    __slots__ = ("_forgot_at", "_seen", "_unseen")

    def __init__(self) -> None:
        self._seen: dict[str, tuple[T, int]] = {}
        self._unseen: dict[str, tuple[T, int]] = {}
        self._forgot_at = 0

    def __getitem__(self, key: str) -> tuple[T, int]:
        found = self._seen.get(key)
        return self._unseen[key] if found is None else found

    def __setitem__(self, key: str, thing: tuple[T, int]) -> None:
        self._seen[key] = thing  # first: a signal handler may raise between the two
        self._unseen.pop(key, None)

    def __delitem__(self, key: str) -> None:
        if self._seen.pop(key, None) is None:
            del self._unseen[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._seen
        yield from self._unseen

    def __len__(self) -> int:
        return len(self._seen) + len(self._unseen)

    def forget(self, now: int, asks: int = 1) -> None:
        """Look at a few entries, and forget those that have ended.

        Args:
            now: microseconds, as of the ends.
            asks: entries that this ask may add (default 1).
        """
        waited, self._forgot_at = now - self._forgot_at, now
        for _ in range(min(len(self), _EACH * asks + min(_MOST, max(0, waited // _PAUSE)))):
            if not self._unseen:
                self._seen, self._unseen = self._unseen, self._seen
            key, each = next(reversed(self._unseen.items()))
            if now < each[1]:
                self._seen.setdefault(key, each)
            self._unseen.popitem()  # last: an interrupt before leaves the entry in both, and none is lost
