"""AsyncRateLimiter: the asyncio front of the rate limiter."""

import asyncio
import weakref
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from types import TracebackType
from typing import Self

import redis.asyncio

from batchlimit.aio.acquire_all import AcquireAll
from batchlimit.aio.awaitable import Answer, Pending
from batchlimit.aio.decorator import AsyncLimit
from batchlimit.aio.key_entry import KeyEntry, arrived, outcome
from batchlimit.aio.key_handle import AsyncKeyHandle
from batchlimit.aio.registry import Registry
from batchlimit.aio.reservation import AsyncReservation
from batchlimit.clock import steady
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.key import check_cost, check_costs, check_key
from batchlimit.quota.lookup import QuotaSource, quota_rule
from batchlimit.quota.template import Cost, Key, Template
from batchlimit.reservoir.admission_result import AdmissionResult
from batchlimit.reservoir.bucket_view import Fill
from batchlimit.reservoir.estimate import OnError
from batchlimit.reservoir.failure_policy import FailureSource
from batchlimit.reservoir.options import Options, check_seconds
from batchlimit.reservoir.sizing import DEFAULT_SIZER, BatchSizer
from batchlimit.reservoir.statistics import Decision, Statistics, outlook
from batchlimit.reservoir.tokens import ONE
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.client.syntax import look, sure
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from batchlimit.stores.open import open_async_store
from batchlimit.stores.protocols import AsyncStore, no_store
from batchlimit.unique import Unique
from batchlimit.waiting import NO_WAIT, deadline


class AsyncRateLimiter(Unique):
    """Admits calls by key under one exact limit for all processes that share the store; for tasks of one event loop.

    What is said of RateLimiter holds here, and what it does is awaited here, but for `statistics`. `store`: a
    redis.asyncio client, an AsyncStore or a MemoryStore that you made.

    It may be made anywhere, and is at home on the loop that first uses it until that is closed. Meanwhile it raises
    RuntimeError in another thread, and on another loop of this thread as soon as it has to ask. A caller may be
    cancelled at any time: it takes no tokens along. A hit spends its token when it is called, awaited or not.
    """

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
        self._registry = Registry(
            opened, rule, Options(sizer, idle_after, fill, weight, max_keys, deadline, on_failure), clock
        )
        self._entries = self._registry.entries
        self._clock = clock
        weakref.finalize(self, self._registry.abandon).atexit = False  # at exit there is no loop any more

    @classmethod
    def from_url(
        cls,
        url: str,
        quota: QuotaSource,
        *,
        prefix: str = "batchlimit",
        connect_timeout: float = 1.0,
        sizer: BatchSizer = DEFAULT_SIZER,
        idle_after: float = 10.0,
        fill: Fill = "share",
        weight: int = 1,
        max_keys: int = 100_000,
        deadline: float = 0.05,
        on_failure: FailureSource = "closed",
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Open the store at `url` and close it with the limiter; a connection may take `connect_timeout` seconds.

        Known are the URLs that RateLimiter.from_url knows. Nothing is connected to before the first call; but
        embedded:// starts its server here, and blocks meanwhile.
        """
        found = look(url)
        del url  # what a traceback goes through shows no password
        address = sure(found)
        quota_rule(quota)  # a typo must not cost a server started in vain
        check_seconds("connect_timeout", connect_timeout)
        store = open_async_store(address, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
        limiter = cls(
            store,
            quota,
            sizer=sizer,
            idle_after=idle_after,
            fill=fill,
            weight=weight,
            max_keys=max_keys,
            deadline=deadline,
            on_failure=on_failure,
            clock=clock,
        )
        limiter._registry.own_store(connect_timeout)
        return limiter

    def __repr__(self) -> str:
        return f"<AsyncRateLimiter on {self._registry.store.address}: {self._registry.keys} keys>"

    def try_acquire(self, key: str, cost: int = 1) -> Answer[bool]:
        """Admit the call or not, now: usually from memory, at most after one bounded round trip, never a sleep."""
        # `Stock.take` and `Reservoir.denies` flattened, as in the threaded API, but without a lock: no other task
        # comes between. That a thread may is why its number is looked at; the loop itself would take 240 ns to ask.
        registry = self._registry
        if registry.thread == get_ident() and cost.__class__ is int and cost > 0:
            try:
                entry = self._entries[key]
            except (KeyError, TypeError):
                return Pending(self._try_acquire(key, cost))
            leased = entry.tokens
            if cost is ONE:
                for before in leased.lock_free:
                    if self._clock() < before:
                        return registry.yes
                    leased.took_late(cost)
                    break
                else:
                    if self._clock() < leased.denied_until:
                        entry.reservoir.refused += 1
                        return registry.no
            if entry.reservoir.denied_for(cost, self._clock()):
                entry.reservoir.refused += cost
                entry.tokens.denied_until = entry.reservoir.denied_until
                return registry.no
            if entry.take(cost) != NO_WAIT:
                return registry.yes
        return Pending(self._try_acquire(key, cost))

    def bucket(self, key: str) -> AsyncKeyHandle:
        """Return the limiter of this one key, for loops in which even to look the key up takes too long."""
        check_key(key)
        return AsyncKeyHandle(self, key)

    async def acquire(self, key: str, cost: int = 1, *, timeout: float | None = None) -> None:
        """Wait until the call is admitted, at most `timeout` seconds; None: as long as it takes.

        Raises RateLimited as soon as it is known that the deadline cannot be met; `retry_after` says when it could.
        Callers are served in order of arrival.
        """
        settled = await self._admit(key, cost, deadline(timeout, self._clock()))
        if not settled.admitted:
            raise settled.refusal(key, self._clock())

    def decide(self, key: str, cost: int = 1) -> Answer[Decision]:
        """Admit the call or not, like try_acquire, and say what a caller wants to be told."""
        return Pending(self._decide(key, cost))

    def peek(self, key: str) -> Answer[Decision]:
        """Say how the next call of cost 1 would fare, by what is in the bucket and in this process."""
        return Pending(self._peek(key))

    async def refund(self, key: str, cost: int = 1) -> None:
        """Take back a call that was admitted and did not happen; refund what was admitted, once, and no more.

        Tokens find room up to the burst; asks again at once where the store had just refused.
        """
        entry = self._entry(key)
        check_cost(cost, entry.reservoir.largest_cost, key)
        await arrived(key, entry.refund(cost))

    def reserve(
        self, key: str, cost: int, *, timeout: float | None = None, on_error: OnError = "keep"
    ) -> AsyncReservation:
        """Charge an estimate now, as `acquire` does; what it really was is settled by the Reservation, once.

        It is charged when what this returns is awaited, or entered by `async with`. `on_error="refund"` takes the
        estimate back where the block raises, or is cancelled.
        """
        return AsyncReservation(key, cost, on_error, self.acquire(key, cost, timeout=timeout), self._adjust)

    async def acquire_all(
        self, costs: Mapping[str, int] | Iterable[tuple[str, int]], *, timeout: float | None = None
    ) -> None:
        """Wait until all of several keys are charged; none of them is until all can be.

        Raises RateLimited by the key that is short as soon as it is known that the deadline cannot be met. A caller
        waits in line at one key at a time, holding nothing of the others.
        """
        wanted, until = check_costs(costs), deadline(timeout, self._clock())
        self._registry.check_open()
        for key, cost in wanted.items():
            check_cost(cost, self._entry(key).reservoir.largest_cost, key)
        await AcquireAll(wanted, self._entry, self._clock).acquire(until)

    def limit(self, key: Key, *, cost: Cost = 1, timeout: float | None = None) -> AsyncLimit:
        """Return a decorator, or a context manager, that acquires before each call of a function, or each block.

        `key` may have fields that name the function's parameters, as in "search:{user}"; key and cost may be functions
        of the call's arguments instead. For coroutine functions, and `async with`.
        """
        deadline(timeout, 0.0)  # what is wrong is said here, and not at each call
        return AsyncLimit(self, Template(key, cost), timeout)

    def statistics(self) -> Statistics:
        """Return what this limiter has done so far; adds up all keys, so not for every call."""
        return self._registry.statistics()

    async def close(self) -> None:
        """Give all tokens back, wake whoever waits with LimiterClosed, and close the store if the limiter opened it."""
        await self._registry.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _try_acquire(self, key: str, cost: int) -> bool:
        try:
            return (await self._admit(key, cost, NO_WAIT)).admitted
        except StoreUnavailable:
            return False

    async def _decide(self, key: str, cost: int) -> Decision:
        return (await self._admit(key, cost, NO_WAIT)).decision(self._clock())

    async def _peek(self, key: str) -> Decision:
        reservoir = self._entry(key).reservoir
        if reservoir.quota.denies_all:
            return outlook(reservoir.quota, 0, 0)
        level = await outcome(self._registry.store.peek, key, reservoir.quota)
        if isinstance(level, StoreUnavailable):
            if (told := reservoir.outlook(self._clock())) is None:
                raise reservoir.failure(level).to_raise(key)
            return told
        return outlook(reservoir.quota, level.level, reservoir.spendable(self._clock()))

    def _adjust(self, key: str, tokens: int) -> "asyncio.Task[int | StoreUnavailable] | None":
        """Charge tokens that were used already, or refund them where they are less than 0; the task that it takes."""
        self._registry.check_open()
        if tokens < 0:
            return self._entry(key).refund(-tokens)
        if tokens > 0:
            self._entry(key).debit(tokens)
        return None

    def _entry(self, key: str) -> KeyEntry:
        self._registry.settle_in()
        try:
            return self._entries[key]
        except (KeyError, TypeError):
            return self._registry.entry(key)

    async def _admit(self, key: str, cost: int, until: float) -> AdmissionResult:
        """Admit or refuse one call by all the rules; raises what went wrong."""
        while True:
            entry = self._entry(key)
            check_cost(cost, entry.reservoir.largest_cost, key)
            if (settled := await entry.settle(cost, until)) is not None:
                return settled
            self._registry.entry(key)  # it had just retired: this makes a new one


def _opened(store: object, prefix: str) -> AsyncStore:
    if isinstance(store, redis.asyncio.Redis | redis.asyncio.RedisCluster):
        return AsyncRedisStore(store, prefix=prefix)
    if isinstance(store, MemoryStore):
        return AsyncMemoryStore(store)
    if isinstance(store, AsyncStore):
        return store
    raise no_store(store, for_tasks=True)
