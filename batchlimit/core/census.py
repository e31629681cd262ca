"""How many hosts share the quotas, as far as the store told."""

_WINDOW = 60.0
"""Seconds: a key that few hosts asked for lately must not hide how many there are; hosts that left are to go."""


class Census:
    """The most hosts that were active at any key within the last minute or two in which the store told.

    One key knows only who asked for it within a second. To divide by that when the store is gone would give each of
    four hosts that ask rarely the whole limit.
    """

    __slots__ = ("_before", "_now", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._before = self._now = 0

    def __repr__(self) -> str:
        return f"<Census of {self.hosts}>"

    @property
    def hosts(self) -> int:
        """The number; 0: none was ever told."""
        return max(self._before, self._now)

    def learn(self, hosts: int, now: float) -> None:
        """Take in what one key's bucket tells. Racing threads may lose a word of it, never the order of magnitude."""
        if now - self._since >= _WINDOW:
            self._before = self._now if now - self._since < 2 * _WINDOW else 0
            self._since, self._now = now, 0
        self._now = max(self._now, hosts)
