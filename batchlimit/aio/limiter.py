"""AsyncRateLimiter: the rate limiter for the tasks of one event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from threading import get_ident
from typing import overload

import redis.asyncio

from batchlimit.aio.awaitable import Answer, Pending
from batchlimit.aio.handles import AsyncKeyHandle, AsyncLimit
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.aio.registry import Registry
from batchlimit.base.decision import Decision, Remains
from batchlimit.base.key import Costs, check_cost, check_key, check_priority
from batchlimit.base.steps import drive
from batchlimit.base.unique import AsyncClosing
from batchlimit.base.waiting import LONG_AGO, NO_WAIT, deadline
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace import several
from batchlimit.keyspace.base_limiter import BaseRateLimiter
from batchlimit.keyspace.reservation import AsyncJointReservation, AsyncReservation, OnError, estimated, fitting
from batchlimit.keyspace.spending import Settled
from batchlimit.quota.template import Cost, Key, Template
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.tokens import ONE
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from batchlimit.stores.open import open_store
from batchlimit.stores.protocols import AsyncStore, no_store


def _store_of(store: object, prefix: str) -> AsyncStore | TypeError:
    if isinstance(store, redis.asyncio.Redis | redis.asyncio.RedisCluster):
        return AsyncRedisStore(store, prefix=prefix)
    if isinstance(store, MemoryStore):
        return AsyncMemoryStore(store)
    if isinstance(store, AsyncStore):
        return store
    return no_store(store, for_tasks=True)


class AsyncRateLimiter(
    BaseRateLimiter["redis.asyncio.Redis | redis.asyncio.RedisCluster | AsyncStore | MemoryStore"], AsyncClosing
):
    """Admits calls by key under one exact limit for all processes that share the store, for tasks of one event loop.

    It decides most calls from memory, by tokens that it has leased from the store. A hit spends its token when the
    method is called, awaited or not. A caller may be cancelled at any time; its tokens stay with the limiter. It has
    15 public methods: those of RateLimiter, which tells of each; here they are awaited.

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
        revision: the number of these quotas; processes obey those of the highest (default 0).
        mode: "enforce" (default), or "shadow": decide and count, and admit all the same; or a dict (see RateLimiter).
        clock: returns seconds (default None: the system's clock). RateLimiter says more of each.

    Raises:
        ValueError, TypeError: an argument cannot work, such as a quota with a typo.

    Example:
        >>> from batchlimit import AsyncRateLimiter
        >>> from batchlimit.stores import MemoryStore
        >>> async with AsyncRateLimiter(MemoryStore(), {"search:*": "2/hour", "*": "1000/s"}) as limiter:
        ...     [await limiter.try_acquire("search:ann") for _ in range(3)]
        [True, True, False]
    """

    _open = staticmethod(partial(open_store, for_tasks=True))
    _opened = staticmethod(_store_of)
    _keep = Registry
    _registry: Registry
    _entries: dict[str, KeyEntry]

    def try_acquire(self, key: str, cost: int = 1) -> Answer[bool]:
        # `FreeTokens.take` and `Admission.deny` flattened, as in the threaded API, but without a lock: no other task
        # comes between. That a thread may is why its number is looked at; the loop itself would take 240 ns to ask.
        registry = self._registry
        if registry.thread == get_ident() and cost.__class__ is int and cost > 0:
            try:
                entry = self._entries[key]
            except (KeyError, TypeError):
                return Pending(self._try(key, cost))
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
            if reservoir.state.is_short(now) and reservoir.admission.deny(cost, now):
                return registry.no
            if entry.take(cost) != LONG_AGO:
                return registry.yes
            return Pending(self._try_at(entry, key, cost))
        return Pending(self._try(key, cost))

    async def acquire(self, key: str, cost: int = 1, *, timeout: float | None = None, priority: int = 1) -> None:
        if priority is not ONE:
            check_priority(priority)
        await self._acquire(key, cost, deadline(timeout, self._clock()), priority)

    def decide(self, key: str, cost: int = 1) -> Answer[Decision]:
        return Pending(self._decide(key, cost))

    def peek(self, key: str) -> Answer[Decision]:
        return Pending(drive(self._registry.peek(key)))

    async def refund(self, key: str, cost: int = 1) -> None:
        entry = self._registry.entry(key)
        check_cost(cost, entry.reservoir.state.most, key)
        await entry.refund(cost, key)()

    async def pause(self, key: str, seconds: float, *, why: str = "") -> None:
        await drive(self._registry.pause(key, seconds, why))

    async def resume(self, key: str) -> bool:
        return await drive(self._registry.resume(key))

    @overload  # type: ignore[override]
    def reserve(
        self, key: str, cost: int, *, timeout: float | None = None, priority: int = 1, on_error: OnError = "keep"
    ) -> AsyncReservation: ...
    @overload
    def reserve(
        self, key: Costs, *, timeout: float | None = None, priority: int = 1, on_error: OnError = "keep"
    ) -> AsyncJointReservation: ...
    def reserve(
        self,
        key: str | Costs,
        cost: int | None = None,
        *,
        timeout: float | None = None,
        priority: int = 1,
        on_error: OnError = "keep",
    ) -> AsyncReservation | AsyncJointReservation:
        costs = estimated(key, cost, on_error)
        made = AsyncJointReservation if cost is None else AsyncReservation
        return made(costs, on_error, self._adjust, self._reserve(costs, timeout, priority))

    def bucket(self, key: str) -> AsyncKeyHandle:
        check_key(key)
        return AsyncKeyHandle(self, key)

    def limit(self, key: Key, *, cost: Cost = 1, timeout: float | None = None) -> AsyncLimit:
        return AsyncLimit(self, Template(key, cost), timeout)

    async def acquire_all(self, costs: Costs, *, timeout: float | None = None, priority: int = 1) -> None:
        check_priority(priority)
        until = deadline(timeout, self._clock())
        if costs.__class__ is dict and len(costs) == 1:  # it need not hold one key's tokens for another's
            ((key, cost),) = costs.items()
            await self._acquire(key, cost, until, priority)
            return
        await drive(several.acquire_all(self._registry, costs, until, priority))

    async def decide_all(self, costs: Costs) -> dict[str, Decision]:
        registry = self._registry
        if registry.thread == get_ident() and (known := registry.memory.decide(costs)) is not None:
            return known
        if costs.__class__ is dict and len(costs) == 1:  # by one spend, if its key is not in use
            ((key, cost),) = costs.items()
            return {key: await self._decide(key, cost)}
        return await drive(several.decide_all(registry, costs))

    def take_leased(self, costs: dict[str, int]) -> dict[str, Remains] | None:
        registry = self._registry
        return registry.memory.take_leased(costs) if registry.thread == get_ident() else None

    async def line_up(self, key: str, wait: float, spacing: float, *, longest: float = 600.0) -> float:
        return await drive(self._registry.line_up(key, wait, spacing, longest))

    async def close(self) -> None:
        await self._registry.close()

    async def _reserve(self, costs: dict[str, int], timeout: float | None, priority: int) -> None:
        """Charge all keys, or none."""
        with fitting(self._registry, costs):
            await self.acquire_all(costs, timeout=timeout, priority=priority)

    async def _acquire(self, key: str, cost: int, until: float, priority: int) -> None:
        """Wait until a call is admitted; RateLimited if that cannot be in time."""
        result = await self._admit(key, cost, until, priority)
        if isinstance(result, AdmissionResult) and not result.admitted:
            raise result.refusal(key, self._clock())

    async def _decide(self, key: str, cost: int) -> Decision:
        """Admit a call or not, without waiting for tokens; StoreUnavailable if the store is away."""
        return (await self._admit(key, cost, NO_WAIT)).decision(self._clock())

    async def _try(self, key: str, cost: int) -> bool:
        """Admit a call or not, without waiting for tokens; False also if the store is away."""
        try:
            return (await self._admit(key, cost, NO_WAIT)).admitted
        except StoreUnavailable:
            return False

    async def _try_at(self, entry: KeyEntry, key: str, cost: int) -> bool:
        """Do the same for a cost above 0 at a known key entry, unless it has retired, or is another loop's, by now."""
        state = entry.reservoir.state
        if state.is_retired or cost > state.largest_cost or asyncio.get_running_loop() is not self._registry.loop:
            return await self._try(key, cost)
        try:
            result = await self._admit_at(entry, cost, NO_WAIT)
        except StoreUnavailable:
            return False
        return await self._try(key, cost) if result is None else result.admitted

    def _adjust(self, key: str, tokens: int) -> Callable[[], Awaitable[None]] | None:
        """Charge tokens that were used already, or refund them where they are less than 0; return what to wait for."""
        self._registry.check_open()
        if tokens < 0:
            return self._registry.entry(key).refund(-tokens, key)
        if tokens > 0:
            entry = self._registry.entry(key)
            entry.locked(lambda: entry.reservoir.lifecycle.debit(tokens, self._clock()))
        return None

    async def _admit(self, key: str, cost: int, until: float, priority: int = 1) -> Settled:
        """Admit or refuse a call, from memory or after waiting; raises what went wrong."""
        registry = self._registry
        while True:
            if asyncio.get_running_loop() is not registry.loop or registry.thread != get_ident():
                registry.settle_in()
            if (key.__class__ is not str or key not in registry.entries) and (
                spent := await registry.spends.one(key, cost, until, priority)
            ) is not None:
                return spent
            entry = registry.entry(key)
            check_cost(cost, entry.reservoir.state.most, key)
            if (
                not entry.reservoir.state.is_retired
                and (result := await self._admit_at(entry, cost, until, priority)) is not None
            ):
                return result
            registry.live_entry(key)

    async def _admit_at(self, entry: KeyEntry, cost: int, until: float, priority: int = 1) -> AdmissionResult | None:
        """Admit or refuse a call at this key entry; None: it has retired."""
        if (before := entry.take(cost)) != LONG_AGO:
            return AdmissionResult.hit(before, entry.reservoir.forecast)
        if entry.refill_gate.admits(cost):
            if (before := await self._wait_for_refill(entry, cost, until)) != LONG_AGO:
                return AdmissionResult.hit(before, entry.reservoir.forecast, waited=True)
            if entry.reservoir.state.is_retired:
                return None
        return await entry.join(cost, until, prompt=True, priority=priority).result()

    async def _wait_for_refill(self, entry: KeyEntry, cost: int, until: float) -> float:
        """Wait for tokens that come for many callers, and take some, as `take` does; LONG_AGO: join the queue."""
        patience = entry.refill_gate.patience
        last = self._clock() + patience  # no caller begins to wait later than that: in the queue each has its turn
        if until != NO_WAIT:
            last = min(last, until - patience)
        while entry.refill_gate.admits(cost) and self._clock() <= last:
            await entry.refill_gate.turn(cost)
            if entry.reservoir.state.is_retired:
                return LONG_AGO
            if (before := entry.take(cost)) != LONG_AGO:
                return before
        return LONG_AGO
