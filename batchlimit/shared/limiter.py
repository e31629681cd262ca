"""The shared concurrency limiters: as many calls at once as each key may have over the whole fleet."""

import asyncio
import math
import weakref
from collections.abc import Mapping
from typing import Any, Protocol, Self, runtime_checkable

import redis

from batchlimit.base.blocking import warn_in_loop
from batchlimit.base.clock import steady_ns
from batchlimit.base.redaction import shown
from batchlimit.base.setting import whole
from batchlimit.base.steps import run
from batchlimit.base.unique import AsyncClosing, Closing, Unique
from batchlimit.base.waiting import patience
from batchlimit.base.waking import ThreadWakeup
from batchlimit.quota.failure_policy import FailureSource, failure_rule, warn_if_uncounted
from batchlimit.reservoir.options import LONGEST_CALL, check_seconds
from batchlimit.shared.engine import Engine
from batchlimit.shared.holdings import SharedStatistics
from batchlimit.shared.local_slots import Shared, limits_of
from batchlimit.shared.permit import AsyncSharedPermit, SharedPermit
from batchlimit.stores.client.address import look, sure
from batchlimit.stores.open import open_store
from batchlimit.stores.protocols import Store
from batchlimit.sync.guarded_store import GuardedStore


@runtime_checkable
class LendingStore(Store, Protocol):
    """A store that lends slots: RedisStore, MemoryStore and the embedded one."""

    @property
    def slots(self) -> Any:
        """Lends slots, wakes those who wait for them, and tells what is lent."""


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
            told = ": make a RedisStore(client) of it" if isinstance(store, redis.Redis | redis.RedisCluster) else ""
            raise TypeError(f"store must be a RedisStore or a MemoryStore, not {shown(store)}{told}")
        limit_of, policy_of = limits_of(limits), failure_rule(on_failure)
        check_seconds("deadline", deadline, most=LONGEST_CALL)
        warn_if_uncounted(on_failure)
        whole("weight", weight, most=1_000_000)
        # An answer that comes after a quarter of a lease is of little use.
        shortest = min(each.lease if isinstance(each, Shared) else 10.0 for each in limits.values())
        guarded = GuardedStore(store, min(deadline, shortest / 4))
        self._engine = Engine(guarded, store.slots, limit_of, policy_of=policy_of, weight=weight, clock=steady_ns)
        self._end = weakref.finalize(self, Engine.retire, self._engine)
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
        check_seconds("connect_timeout", connect_timeout, most=LONGEST_CALL)
        check_seconds("deadline", deadline, most=LONGEST_CALL)
        address = sure(found)
        store = open_store(address, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
        assert isinstance(store, LendingStore)
        limiter = cls(store, limits, weight=weight, deadline=deadline, on_failure=on_failure)
        limiter._engine.owned = store
        limiter._engine.store.allow(connect_timeout)
        return limiter

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._engine.holdings)} keys>"

    def statistics(self) -> SharedStatistics:
        """Return how many permits are under way and how many callers wait now, and what was counted so far.

        Returns:
            A copy, which changes no more.
        """
        return self._engine.holdings.statistics()


class SharedConcurrencyLimiter(Closing, BaseSharedLimiter):
    """Limits how many calls of each key are under way at once, over all processes that share a store.

    The store lends permits to each limiter instance for a lease, which a background thread renews. Never more than
    `limit` permits of a key are held over the fleet, as long as calls stop whose permit is lost. It is safe in threads
    and over fork: a child holds nothing.

    Args:
        store: A RedisStore or a MemoryStore; `from_url` makes one.
        limits: A dict from keys and glob patterns to limits: a whole number of permits, or Shared, which adds a queue
            and a lease. A key counts by the first entry that names it: the key itself, then the patterns in their
            order, then "*". While instances name different limits, the lowest counts.
        weight: The part of this instance while instances compete (whole number, default 1).
        deadline: How long the store may take to answer (seconds, default 0.5; a quarter of the shortest lease at most).
        on_failure: What callers get while the store is away: "closed" (default) raises StoreUnavailable, "open" admits,
            `FailurePolicy.local(instances=8)` admits an eighth of the limit. Or a dict from keys and patterns to those.

    Raises:
        TypeError, ValueError: An argument cannot work.

    Example:
        >>> from batchlimit import ConcurrencyLimited
        >>> from batchlimit.shared import SharedConcurrencyLimiter
        >>> limiter = SharedConcurrencyLimiter.from_url("memory://", {"export:*": 1})
        >>> with limiter.acquire("export:42"):
        ...     try:
        ...         limiter.acquire("export:42", timeout=0)
        ...     except ConcurrencyLimited as refusal:
        ...         print(refusal.reason, refusal.key)
        limit export:42
        >>> limiter.close()
    """

    def acquire(self, key: str, *, timeout: float | None = None, priority: int = 0) -> SharedPermit:
        """Return a permit of a key, at once or when it is this caller's turn.

        Args:
            key: What is limited, such as "export:42".
            timeout: How long to wait at most (seconds). None, the default: as long as the queue lets it; 0: for the
                store's answer alone, not for a release.
            priority: Of the callers that wait in this process, those of higher priority are served first (whole
                number, default 0). One place of eight goes to who has waited longest.

        Returns:
            The permit, held until it is released.

        Raises:
            ConcurrencyLimited: There was no permit in time ("limit", "queue_timeout"), or the queue was full.
            LimiterClosed: The limiter was closed.
            StoreUnavailable: The store is away, and `on_failure` is "closed" for this key.
            TypeError: The key is no str, `timeout` no number, or `priority` no whole number.
            ValueError: The key has no limit or is empty, or `timeout` is below 0.
        """
        permit, wait = SharedPermit(self._engine, key), patience(timeout)
        whole("priority", priority, -math.inf, math.inf)
        if waits := self._engine.enter(permit, wait, priority, ThreadWakeup):
            warn_in_loop()
            run(self._engine.waiting(permit, *waits))
        return permit

    def close(self) -> None:
        """Let no call enter any more, and give back what is free; waiters get LimiterClosed, calls under way go on."""
        self._end.detach()
        self._engine.close()


class AsyncSharedConcurrencyLimiter(AsyncClosing, BaseSharedLimiter):
    """Limits how many calls of each key are under way at once, over all processes that share a store, for asyncio.

    As SharedConcurrencyLimiter, with the same thread for the store: an event loop that is busy for seconds keeps its
    permits. One limiter serves the tasks of any event loops.

    Args:
        store, limits, weight, deadline, on_failure: As of SharedConcurrencyLimiter, with the same defaults.

    Raises:
        TypeError, ValueError: An argument cannot work.

    Example:
        >>> from batchlimit.shared import AsyncSharedConcurrencyLimiter
        >>> async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"export:*": 10}) as limiter:
        ...     async with limiter.acquire("export:42"):
        ...         limiter.statistics().keys["export:42"].in_flight
        1
    """

    def acquire(
        self, key: str, *, timeout: float | None = None, priority: int = 0, cancel: bool = True
    ) -> AsyncSharedPermit:
        """Return a permit to be awaited, or to be the context of an `async with` block: the task enters there.

        Args:
            key, timeout, priority: As of `SharedConcurrencyLimiter.acquire`, with the same defaults.
            cancel: True, the default: a block whose permit is lost is cancelled, and ends in PermitLost. False: the
                block goes on, and is to look at `lost` or to `check`.

        Returns:
            The permit. It raises ConcurrencyLimited, StoreUnavailable or LimiterClosed where the task enters.

        Raises:
            TypeError: `timeout` is no number, or `priority` no whole number.
            ValueError: `timeout` is below 0.
        """
        return AsyncSharedPermit(
            self._engine, key, patience(timeout), whole("priority", priority, -math.inf, math.inf), cancel
        )

    async def close(self) -> None:
        """Let no call enter any more, and give back what is free; waiters get LimiterClosed, calls under way go on."""
        self._end.detach()
        await asyncio.to_thread(self._engine.close)
