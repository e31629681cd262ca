"""What the shared concurrency limiters of both APIs share: their arguments, their engine and their statistics."""

import weakref
from collections.abc import Mapping
from typing import Any, Protocol, Self, runtime_checkable

from batchlimit.clock import steady_ns
from batchlimit.quota.failure_policy import FailureSource, failure_rule, warn_if_uncounted
from batchlimit.quota.key import check_prefix
from batchlimit.redaction import shown
from batchlimit.reservoir.options import check_seconds
from batchlimit.shared.engine import Engine
from batchlimit.shared.limits import Shared, limits_of
from batchlimit.shared.statistics import SharedStatistics
from batchlimit.stores.client.syntax import look, sure
from batchlimit.stores.open import open_store
from batchlimit.stores.protocols import Store
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.unique import Unique


@runtime_checkable
class LendingStore(Store, Protocol):
    """A store that lends slots: RedisStore, MemoryStore and the embedded one."""

    @property
    def slots(self) -> Any:
        """The Lender."""
        ...


def checked(priority: object) -> int:
    """Return a priority, or raise TypeError."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority must be a whole number, not {shown(priority)}")
    return priority


class BaseSharedLimiter(Unique):
    """An engine. Each of the two APIs has its own way to wait."""

    def __init__(
        self,
        store: LendingStore,
        limits: Mapping[str, int | Shared],
        *,
        weight: int = 1,
        deadline: float = 0.5,
        on_failure: FailureSource = "closed",
    ) -> None:
        if not isinstance(store, LendingStore):
            raise TypeError(f"store must be a RedisStore or a MemoryStore, not {shown(store)}")
        limit_of, policy_of = limits_of(limits), failure_rule(on_failure)
        check_seconds("deadline", deadline)
        warn_if_uncounted(on_failure)
        if isinstance(weight, bool) or not isinstance(weight, int):
            raise TypeError(f"weight must be a whole number, not {shown(weight)}")
        if not 1 <= weight <= 1_000_000:
            raise ValueError(f"weight must be from 1 to 1,000,000, not {shown(weight)}")
        # An answer that comes after a quarter of a lease is of little use.
        shortest = min(each.lease if isinstance(each, Shared) else 10.0 for each in limits.values())
        guarded = GuardedStore(store, min(deadline, shortest / 4))
        self._engine = Engine(guarded, store.slots, limit_of, policy_of=policy_of, weight=weight, clock=steady_ns)
        self._end = weakref.finalize(self, self._engine.retire)
        self._end.atexit = False  # at exit the engines close by themselves

    @classmethod
    def from_url(
        cls,
        url: str,
        limits: Mapping[str, int | Shared],
        *,
        prefix: str = "batchlimit",
        connect_timeout: float = 1.0,
        weight: int = 1,
        deadline: float = 0.5,
        on_failure: FailureSource = "closed",
    ) -> Self:
        """Open the store at `url`; `close` closes it with the limiter. It connects at the first call.

        Args:
            url: redis://, rediss:// (TLS), unix://, valkey://, valkeys://, redis+cluster://, redis+sentinel://,
                memory:// (this process alone) or embedded:// (a Valkey server that the limiter starts and stops).
            limits: as for the class.
            prefix: names in the store begin with it (text, default "batchlimit").
            connect_timeout: seconds that a connection may take (default 1).
            weight, deadline, on_failure: as for the class.

        Returns:
            The limiter.

        Raises:
            ValueError, TypeError: the URL cannot be read or its scheme is unknown, or another argument cannot work.

        Example:
            >>> from batchlimit.shared import SharedConcurrencyLimiter
            >>> limiter = SharedConcurrencyLimiter.from_url("memory://", {"export:*": 10, "gpu": 64})
            >>> limiter.acquire("gpu", timeout=0.5).release()
            >>> limiter.close()
        """
        found = look(url)
        del url  # the frames of a traceback show no password
        limits_of(limits)  # before a server is started
        check_seconds("connect_timeout", connect_timeout)
        address = sure(found)
        store = open_store(address, prefix=check_prefix(prefix), connect_timeout=connect_timeout, deadline=deadline)
        assert isinstance(store, LendingStore)
        limiter = cls(store, limits, weight=weight, deadline=deadline, on_failure=on_failure)
        limiter._engine.own_store(store, connect_timeout)
        return limiter

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._engine!r}>"

    def statistics(self) -> SharedStatistics:
        """Return how many permits are under way and how many callers wait now, and what was counted so far.

        Returns:
            A copy, which changes no more.
        """
        return self._engine.statistics()
