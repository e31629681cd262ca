"""How long a call of a store may take: the rules that both APIs share."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchlimit.stores.protocols import AsyncStore, Store

TO_CONNECT = 5
"""Deadlines that a call may wait for a connection if the store answered before and does not fail now. It is probably
there, so the call should not be refused; but a connection that hangs should not cost `connect_timeout`."""
MANY = 64
"""A fetch that brings so many times what one caller wants serves all callers that wait at the refill gate."""
_PART = 1 / 8


class Timeouts:
    """The time that a guarded store gives its store: `deadline` seconds for an answer, and more for a connection."""

    def __init__(self, store: "Store | AsyncStore", deadline: float) -> None:
        self._addressed, self._deadline, self._connecting = store, deadline, 1.0
        self._has_answered = False

    def allow(self, connect_timeout: float) -> None:
        """Give a store that has not answered yet, and each probe, so many seconds more: they may have to connect."""
        self._connecting = connect_timeout

    @property
    def address(self) -> str:
        """See Store.address."""
        return self._addressed.address

    @property
    def deadline(self) -> float:
        """How long (s) an answer may take."""
        return self._deadline

    @property
    def longest(self) -> float:
        """How long (s) a call may take, with a connection that has to be made first."""
        return self._deadline + self._connecting

    @property
    def brief(self) -> float:
        """The longest (seconds) that a caller waits at the refill gate for the fetch of another."""
        return self._deadline * _PART

    def _to_connect(self) -> float:
        """Return how long a call may wait for a connection, on top of its deadline (s)."""
        return min(self._connecting, TO_CONNECT * self._deadline) if self._has_answered else self._connecting
