"""The limiters that a fleet drives: batchlimit's, or others with the same methods."""

import threading
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any, Protocol

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.aio.key_entry import KeyEntry as AsyncKeyEntry
from batchlimit.keyspace.spending import KeySpend, Settled
from batchlimit.quota.lookup import QuotaSource
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.stores import AsyncStore, MemoryStore, Store
from batchlimit.sync.key_entry import KeyEntry


class Tally(threading.local):
    """Counts the calls of each thread that waited for the store."""

    waited: int = 0
    """Calls that waited for the store: they asked it, or queued behind one that did."""


class TaskTally:
    """Counts the calls of each task that waited for the store."""

    def __init__(self) -> None:
        self._waited: ContextVar[int] = ContextVar("waited", default=0)

    @property
    def waited(self) -> int:
        """Calls that waited for the store, of the current task."""
        return self._waited.get()

    @waited.setter
    def waited(self, waited: int) -> None:
        self._waited.set(waited)


class Counts(Protocol):
    """A limiter's statistics."""

    @property
    def calls(self) -> int:
        """Requests to the store."""
        ...


class Limiter(Protocol):
    """A limiter that a fleet can drive; safe in threads."""

    tally: Tally

    def try_acquire(self, key: str, cost: int = 1, /) -> bool:
        """Admit the call or refuse it now; raise StoreUnavailable if the store does not answer."""
        ...

    def statistics(self) -> Counts:
        """Return its statistics."""
        ...

    def close(self) -> None:
        """Close the limiter."""
        ...


class AsyncLimiter(Protocol):
    """A limiter that a fleet can drive with the tasks of one event loop."""

    tally: TaskTally

    def try_acquire(self, key: str, cost: int = 1, /) -> Awaitable[bool]:
        """See Limiter.try_acquire."""
        ...

    def statistics(self) -> Counts:
        """See Limiter.statistics."""
        ...

    async def close(self) -> None:
        """Close the limiter."""
        ...


class WatchedLimiter(RateLimiter):
    """A RateLimiter with a tally. Hits bypass it, so they cost the same as without."""

    def __init__(self, store: Store, quota: QuotaSource, **options: Any) -> None:
        super().__init__(store, quota, **options)
        self.tally = Tally()

    def _admit(self, key: str, cost: int, until: float, priority: int = 1) -> Settled:
        result = super()._admit(key, cost, until, priority)
        self.tally.waited += isinstance(result, KeySpend)
        return result

    def _wait(self, entry: KeyEntry, cost: int, until: float, priority: int = 1) -> AdmissionResult | None:
        result = super()._wait(entry, cost, until, priority)
        self.tally.waited += result is not None and result.waited
        return result


class AsyncWatchedLimiter(AsyncRateLimiter):
    """An AsyncRateLimiter with a tally. Hits bypass it."""

    def __init__(self, store: AsyncStore | MemoryStore, quota: QuotaSource, **options: Any) -> None:
        super().__init__(store, quota, **options)
        self.tally = TaskTally()

    async def _admit(self, key: str, cost: int, until: float, priority: int = 1) -> Settled:
        result = await super()._admit(key, cost, until, priority)
        self.tally.waited += isinstance(result, KeySpend)  # what an entry settles is counted below
        return result

    async def _admit_at(
        self, entry: AsyncKeyEntry, cost: int, until: float, priority: int = 1
    ) -> AdmissionResult | None:
        result = await super()._admit_at(entry, cost, until, priority)
        self.tally.waited += result is not None and result.waited
        return result
