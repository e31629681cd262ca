"""How long a call of a store may take, as far as both APIs have the same rules for it."""

from typing import Protocol

TO_CONNECT = 5
"""For how many deadlines a call may wait for a connection, where the store answered before and does not fail: it is
there, so it would be a pity to refuse. But who connects to nowhere is not to wait a second for it."""
MANY = 64
"""A fetch that brings so many times what somebody wants serves all who may have waited for it at a turnstile."""
_PART = 1 / 8


class Addressed(Protocol):
    """What there is to say of any store."""

    @property
    def address(self) -> str:
        """Where it is."""
        ...


class Timeouts:
    """The time that a guard gives its store: `deadline` seconds for an answer, and more for a connection."""

    def __init__(self, store: Addressed, deadline: float) -> None:
        self._addressed, self._deadline, self._connecting = store, deadline, 1.0
        self._has_answered = False

    def allow(self, connect_timeout: float) -> None:
        """Give a store that has not answered yet so many seconds more, and a probe: they may have to connect first."""
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
    def brief(self) -> float:
        """How long (s) anybody waits at a turnstile at the most, and a fetch may take that is waited for there."""
        return self._deadline * _PART

    def _to_connect(self) -> float:
        """Return how long a call may wait for a connection, on top of its deadline (s)."""
        return min(self._connecting, TO_CONNECT * self._deadline) if self._has_answered else self._connecting
