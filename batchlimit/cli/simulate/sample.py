"""How often limiters would have asked the store for charges that arithmetic decided: told by a sample of the same kind.

A key's requests within some seconds are one stretch. Stretches with about as many requests are of one kind. Of each
kind about one in a hundred is decided by reservoirs as well, and their calls are counted.
"""

from collections import defaultdict

_FEWEST = 200
"""Charges that are sampled of each kind, if there are as many."""
_ONE_OF = 100


class CallSample:
    """Counts by kind of stretch."""

    def __init__(self) -> None:
        self._screened: defaultdict[int, int] = defaultdict(int)
        self._sampled: defaultdict[int, int] = defaultdict(int)
        self._calls: defaultdict[int, int] = defaultdict(int)
        self._kinds: dict[str, int] = {}

    def begins(self, key: str, count: int) -> bool:
        """Whether the stretch that begins is to be sampled, as one of as many requests as the last one of this key."""
        kind = count.bit_length()
        if self._sampled[kind] >= _FEWEST + self._screened[kind] // _ONE_OF:
            return False
        self._kinds[key] = kind
        return True

    def call(self, key: str) -> None:
        """Take note of a call of the store; it counts if the last sample of its key is of its making."""
        if (kind := self._kinds.get(key)) is not None:
            self._calls[kind] += 1

    def screen(self, count: int) -> None:
        """Take note of a stretch that arithmetic decided."""
        self._screened[count.bit_length()] += count

    def add(self, key: str, count: int) -> None:
        """Take note of a stretch that reservoirs decided as well."""
        self._sampled[self._kinds[key]] += count

    def leave(self, key: str) -> None:
        """Take note that reservoirs alone decide from now on."""
        self._kinds.pop(key, None)

    @property
    def calls(self) -> int:
        """Calls that the charges without a reservoir would have made."""
        return round(sum(count * self._share(kind) for kind, count in self._screened.items()))

    def _share(self, kind: int) -> float:
        """Return the calls of a charge, by the kind that was sampled and is most like this one."""
        known = [each for each, count in self._sampled.items() if count]
        if not known:
            return 1.0
        like = min(known, key=lambda each: abs(each - kind))
        return self._calls[like] / self._sampled[like]
