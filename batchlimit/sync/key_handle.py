"""The limiter of one key, for hot loops."""

from collections.abc import Callable
from typing import Protocol

from batchlimit.quota.key import place_of, stored
from batchlimit.redaction import shown
from batchlimit.reservoir.estimate import OnError
from batchlimit.reservoir.statistics import Decision
from batchlimit.reservoir.tokens import ONE
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.reservation import Reservation


class Limits(Protocol):
    """What a handle needs of its limiter."""

    _clock: Callable[[], float]
    _entries: dict[str, KeyEntry]

    def try_acquire(self, key: str, cost: int = 1) -> bool:
        """See RateLimiter; so the others."""
        ...

    def acquire(self, key: str, cost: int = 1, *, timeout: float | None = None) -> None: ...

    def decide(self, key: str, cost: int = 1) -> Decision: ...

    def peek(self, key: str) -> Decision: ...

    def refund(self, key: str, cost: int = 1) -> None: ...

    def reserve(
        self, key: str, cost: int, *, timeout: float | None = None, on_error: OnError = "keep"
    ) -> Reservation: ...


class KeyHandle:
    """A limiter's methods for one key, which is looked up once.

    Keep it as long as you like, share it between threads, use it in a forked child: what it remembers of the key is
    let go of when the key is idle, and found again when it is asked for.
    """

    __slots__ = ("_clock", "_entry", "_limiter", "_place", "key")

    def __init__(self, limiter: Limits, key: str) -> None:
        self.key, self._place = key, place_of(stored(key))
        self._limiter, self._clock = limiter, limiter._clock
        self._entry: KeyEntry | None = None

    def __repr__(self) -> str:
        return f"<Bucket {shown(self.key)} of {self._limiter!r}>"

    def try_acquire(self, cost: int = 1) -> bool:
        """As the limiter does; in its words, but for the look for the key entry."""
        entry = self._entry
        if cost is ONE and entry is not None:
            for before in entry.tokens.lock_free:
                if self._clock() < before:
                    return True
                entry.took_late(cost)
                break
            else:
                if self._clock() < entry.tokens.denied_until:
                    entry.reservoir.refused += 1
                    return False
        return self._look_up(cost)

    def acquire(self, cost: int = 1, *, timeout: float | None = None) -> None:
        """As the limiter does."""
        self._limiter.acquire(self.key, cost, timeout=timeout)

    def decide(self, cost: int = 1) -> Decision:
        """As the limiter does."""
        return self._limiter.decide(self.key, cost)

    def peek(self) -> Decision:
        """As the limiter does."""
        return self._limiter.peek(self.key)

    def refund(self, cost: int = 1) -> None:
        """As the limiter does."""
        self._limiter.refund(self.key, cost)

    def reserve(self, cost: int, *, timeout: float | None = None, on_error: OnError = "keep") -> Reservation:
        """As the limiter does."""
        return self._limiter.reserve(self.key, cost, timeout=timeout, on_error=on_error)

    def _look_up(self, cost: int) -> bool:
        admitted = self._limiter.try_acquire(self.key, cost)
        self._entry = self._limiter._entries.get(self._place)
        return admitted
