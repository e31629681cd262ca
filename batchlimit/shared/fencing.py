"""The numbers of permits, which other systems compare to refuse a late writer."""

SEQUENCE = 1 << 14
"""Permits are numbered within a token of the store, up to so many; later ones have the last number."""


class FencingTokens:
    """The numbers of the permits of one key: the store's token, and within it the order of the permits.

    Attributes:
        last: The largest token that the store told; it grows with each ask.
    """

    __slots__ = ("_sequence", "last")

    def __init__(self) -> None:
        self.last = self._sequence = 0

    def __repr__(self) -> str:
        return f"<FencingTokens {self.last} {self._sequence}>"

    def learn(self, token: int) -> None:
        """Take over what the store told; an older token changes nothing."""
        if token > self.last:
            self.last, self._sequence = token, 0

    def next(self) -> int:
        """Return the number of the next permit."""
        self._sequence = min(self._sequence + 1, SEQUENCE - 1)
        return self.last * SEQUENCE + self._sequence
