"""AsyncRateLimiter: the rate limiter for the tasks of one event loop."""

import weakref
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from types import TracebackType
from typing import Self

import redis.asyncio

from batchlimit.aio.acquire_all import AcquireAll
from batchlimit.aio.awaitable import Answer, Pending
from batchlimit.aio.decide_all import decide_from_memory
from batchlimit.aio.decorator import AsyncLimit
from batchlimit.aio.key_handle import AsyncKeyHandle
from batchlimit.aio.registry import Registry
from batchlimit.aio.reservation import AsyncReservation
from batchlimit.aio.slow_path import SlowPath
from batchlimit.base_limiter import BaseRateLimiter
from batchlimit.clock import steady
from batchlimit.decision import Decision
from batchlimit.quota.key import check_key
from batchlimit.quota.lookup import QuotaSource, quota_rule
from batchlimit.quota.template import Cost, Key, Template
from batchlimit.reservoir.bucket_view import Fill
from batchlimit.reservoir.estimate import OnError
from batchlimit.reservoir.failure_policy import FailureSource
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.sizing import DEFAULT_SIZER, BatchSizer
from batchlimit.reservoir.tokens import ONE
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from batchlimit.stores.open import open_async_store
from batchlimit.stores.protocols import AsyncStore, no_store
from batchlimit.waiting import NO_WAIT, deadline


class AsyncRateLimiter(BaseRateLimiter):
    """Admits calls by key under one exact limit for all processes that share the store, for tasks of one event loop.

    It decides most calls from memory, by tokens that it has leased from the store. A hit spends its token when the
    method is called, awaited or not. A caller may be cancelled at any time; its tokens stay with the limiter.

    It may be made anywhere, and belongs to the loop that first uses it until that loop is closed. Meanwhile it raises
    RuntimeError in another thread, and on another loop of this thread as soon as it has to ask the store.

    Every method raises LimiterClosed after `close`. A cost is a whole number of tokens, and 0 is always admitted. A
    cost that is negative or above the burst raises ValueError, and so does a key without a quota. A wrong type raises
    TypeError. The examples of the methods await at the prompt, as in `python -m asyncio`.

    Args:
        store: a redis.asyncio client, an AsyncStore or a MemoryStore that the caller made; the limiter never closes it.
        quota: a Quota, its text, a dict from keys and patterns to those, or a function of the key.
        prefix: what the names of the buckets begin with (default "batchlimit").
        sizer: how many tokens to lease at a time (default TimeBatch()).
        idle_after: seconds after which an unused key leaves the memory (default 10).
        fill: how full a bucket begins anew after a loss: "full", "share" (default) or "empty".
        weight: this instance's weight where tokens are short (default 1).
        max_keys: keys in memory at once (default 100,000).
        deadline: seconds that a call of the store may take (default 0.05).
        on_failure: what callers get while the store is away (default "closed").
        clock: returns seconds (default None: the system's clock). RateLimiter says more of each.

    Raises:
        ValueError, TypeError: an argument cannot work, such as a quota with a typo.

    Example:
        >>> import asyncio
        >>> from batchlimit import AsyncRateLimiter
        >>> from batchlimit.stores import MemoryStore
        >>> async def main():
        ...     async with AsyncRateLimiter(MemoryStore(), {"search:*": "2/hour", "*": "1000/s"}) as limiter:
        ...         return [await limiter.try_acquire("search:ann") for _ in range(3)]
        >>> asyncio.run(main())
        [True, True, False]
    """

    _open = staticmethod(open_async_store)
    _registry: Registry

    def __init__(
        self,
        store: "redis.asyncio.Redis | redis.asyncio.RedisCluster | AsyncStore | MemoryStore",
        quota: QuotaSource,
        *,
        prefix: str = "batchlimit",
        sizer: BatchSizer = DEFAULT_SIZER,
        idle_after: float = 10.0,
        fill: Fill = "share",
        weight: int = 1,
        max_keys: int = 100_000,
        deadline: float = 0.05,
        on_failure: FailureSource = "closed",
        clock: Callable[[], float] | None = None,
    ) -> None:
        rule, clock = quota_rule(quota, max_keys), clock or steady
        opened = _opened(store, prefix)
        options = Options(sizer, idle_after, fill, weight, max_keys, deadline, on_failure)
        self._registry = Registry(opened, rule, options, clock)
        self._entries = self._registry.entries
        self._clock = clock
        self._slow_path = SlowPath(self._registry)
        weakref.finalize(self, self._registry.abandon).atexit = False  # at exit there is no loop any more

    def try_acquire(self, key: str, cost: int = 1) -> Answer[bool]:
        """Admit the call or not, now: usually from memory, at most after one bounded round trip, never a sleep.

        Args:
            key: what is limited, such as "search:ann".
            cost: whole tokens (default 1); 0 is always admitted.

        Returns:
            Whether the call may go ahead. False also while the store is away and `on_failure` is "closed".

        Raises:
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", "2/hour")
            >>> [await limiter.try_acquire("ann") for _ in range(3)]
            [True, True, False]
        """
        # `FreeTokens.take` and `Admission.deny` flattened, as in the threaded API, but without a lock: no other task
        # comes between. That a thread may is why its number is looked at; the loop itself would take 240 ns to ask.
        registry = self._registry
        if registry.thread == get_ident() and cost.__class__ is int and cost > 0:
            try:
                entry = self._entries[key]
            except (KeyError, TypeError):
                return Pending(self._slow_path.try_acquire(key, cost))
            leased = entry.tokens
            if cost is ONE:
                for before in leased.lock_free:
                    if self._clock() < before:
                        return registry.yes
                    leased.took_late(cost)
                    break
                else:
                    if self._clock() < leased.denied_until:
                        leased.refused += 1
                        return registry.no
            reservoir, now = entry.reservoir, self._clock()
            if reservoir.forecast.denied_for(cost, now) and reservoir.admission.deny(cost, now):
                return registry.no
            if entry.take(cost) != NO_WAIT:
                return registry.yes
        return Pending(self._slow_path.try_acquire(key, cost))

    def bucket(self, key: str) -> AsyncKeyHandle:
        """Return the limiter of one key, for loops in which even to look the key up takes too long.

        Args:
            key: what is limited.

        Returns:
            An AsyncKeyHandle, with the limiter's methods but for the key.

        Raises:
            ValueError, TypeError: the key is empty, or no str.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", "2/hour")
            >>> await limiter.bucket("ann").try_acquire()
            True
        """
        check_key(key)
        return AsyncKeyHandle(self, key)

    async def acquire(self, key: str, cost: int = 1, *, timeout: float | None = None) -> None:
        """Wait until the call is admitted. Callers are served in order of arrival.

        Args:
            key: what is limited.
            cost: whole tokens (default 1); 0 is always admitted.
            timeout: seconds to wait at most; 0 does not wait (default None: no limit).

        Raises:
            RateLimited: `timeout` cannot be met; raised as soon as that is known. `retry_after` says when to return.
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", "1/hour")
            >>> await limiter.acquire("ann")
            >>> await limiter.acquire("ann", timeout=0.5)
            Traceback (most recent call last):
            ...
            batchlimit.errors.RateLimited: 'ann' is over its quota; retry after 3...
        """
        await self._slow_path.acquire(key, cost, timeout)

    def decide(self, key: str, cost: int = 1) -> Answer[Decision]:
        """Admit the call or not, like try_acquire, and say what a caller wants to be told.

        Args:
            key: what is limited.
            cost: whole tokens (default 1); 0 is always admitted.

        Returns:
            A Decision, which is true if the call may go ahead.

        Raises:
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", "2/hour")
            >>> decision = await limiter.decide("ann")
            >>> decision.allowed, decision.limit, decision.remaining
            (True, 2, 1)
        """
        return Pending(self._slow_path.decide(key, cost))

    def peek(self, key: str) -> Answer[Decision]:
        """Say how the next call of cost 1 would fare. Nothing is charged.

        Args:
            key: what is limited.

        Returns:
            A Decision by what is in the bucket and in this process; it takes one round trip.

        Raises:
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", "2/hour")
            >>> (await limiter.peek("ann")).remaining
            2
        """
        return Pending(self._slow_path.peek(key))

    async def refund(self, key: str, cost: int = 1) -> None:
        """Take back a call that was admitted and did not happen.

        Refund what was admitted, once, and no more. The bucket takes back at most what makes it full.

        Args:
            key: what the call was charged to.
            cost: whole tokens (default 1), as at the call.

        Raises:
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", "1/hour")
            >>> await limiter.acquire("ann")
            >>> await limiter.refund("ann")
            >>> await limiter.try_acquire("ann")
            True
        """
        await self._slow_path.refund(key, cost)

    def reserve(
        self, key: str, cost: int, *, timeout: float | None = None, on_error: OnError = "keep"
    ) -> AsyncReservation:
        """Charge an estimate now, as `acquire` does, and settle later what it really was.

        Args:
            key: what is limited.
            cost: the estimate, in whole tokens.
            timeout: seconds to wait at most; 0 does not wait (default None: no limit).
            on_error: what becomes of the estimate if the block raises or is cancelled: "keep" (default) or "refund".

        Returns:
            An AsyncReservation. The estimate is charged when it is awaited, or entered by `async with`.

        Raises:
            RateLimited: `timeout` cannot be met.
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", "10/hour")
            >>> async with limiter.reserve("ann", 5) as reservation:
            ...     await reservation.settle(2)
            >>> (await limiter.decide("ann", 0)).remaining
            8
        """
        return AsyncReservation(key, cost, on_error, self._reserve(key, cost, timeout), self._slow_path.adjust)

    async def _reserve(self, key: str, cost: int, timeout: float | None) -> None:
        self._registry.entry(key)  # what is settled for less stays there
        await self.acquire(key, cost, timeout=timeout)

    async def acquire_all(
        self, costs: Mapping[str, int] | Iterable[tuple[str, int]], *, timeout: float | None = None
    ) -> None:
        """Wait until all of several keys are charged; none of them is until all can be.

        A caller waits in the queue of one key at a time and holds nothing of the others meanwhile.

        Args:
            costs: whole tokens by key, as a dict or as pairs.
            timeout: seconds to wait at most; 0 does not wait (default None: no limit).

        Raises:
            RateLimited: `timeout` cannot be met; its `key` is the one that is short.
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", {"user:*": "2/hour", "*": "1000/s"})
            >>> await limiter.acquire_all({"user:ann": 1, "everybody": 1}, timeout=0)
        """
        until = deadline(timeout, self._clock())
        await AcquireAll(costs, self._registry).acquire(until)

    async def decide_all(self, costs: Mapping[str, int] | Iterable[tuple[str, int]]) -> dict[str, Decision]:
        """Charge all of several keys now, or none of them, and say what a caller wants to be told.

        `all(decisions.values())` says whether the call may go ahead.

        Args:
            costs: whole tokens by key, as a dict or as pairs.

        Returns:
            A Decision for each key if all are charged; else only the one of the key that is short.

        Raises:
            StoreUnavailable: the store is away and `on_failure` is "closed" for a key; its `key` says which.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", {"user:*": "1/hour", "*": "9/hour"})
            >>> for _ in range(2):
            ...     decisions = await limiter.decide_all({"user:ann": 1, "everybody": 1})
            ...     print({key: decision.allowed for key, decision in decisions.items()})
            {'user:ann': True, 'everybody': True}
            {'user:ann': False}
        """
        if self._registry.thread == get_ident():
            known = decide_from_memory(self._entries, costs, self._clock)
            if known is not None:
                return known
        return await AcquireAll(costs, self._registry).decide()

    def limit(self, key: Key, *, cost: Cost = 1, timeout: float | None = None) -> AsyncLimit:
        """Return a decorator, or a context manager, that acquires before each call of a function, or each block.

        Args:
            key: text, whose fields name the function's parameters, as in "search:{user}"; or a function of the call's
                arguments that returns the key.
            cost: whole tokens (default 1), or a function of the call's arguments that returns them.
            timeout: seconds that each call waits at most; 0 does not wait (default None: no limit).

        Returns:
            An AsyncLimit, for coroutine functions and `async with`. Their calls raise what `acquire` raises.

        Raises:
            ValueError, TypeError: an argument cannot work, such as an empty key.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", "2/hour")
            >>> @limiter.limit("search:{user}")
            ... async def search(user):
            ...     return f"hits for {user}"
            >>> await search("ann")
            'hits for ann'
        """
        return AsyncLimit(self, Template(key, cost), timeout)

    async def close(self) -> None:
        """Give all tokens back, wake all waiters with LimiterClosed, and close the store if the limiter opened it.

        An `async with` block does the same at its end. To close twice is no error.

        Example:
            >>> limiter = AsyncRateLimiter.from_url("memory://", "2/hour")
            >>> await limiter.close()
            >>> await limiter.try_acquire("ann")
            Traceback (most recent call last):
            ...
            batchlimit.errors.LimiterClosed: this limiter was closed
        """
        await self._registry.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _opened(store: object, prefix: str) -> AsyncStore:
    if isinstance(store, redis.asyncio.Redis | redis.asyncio.RedisCluster):
        return AsyncRedisStore(store, prefix=prefix)
    if isinstance(store, MemoryStore):
        return AsyncMemoryStore(store)
    if isinstance(store, AsyncStore):
        return store
    raise no_store(store, for_tasks=True)
