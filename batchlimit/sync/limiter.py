"""RateLimiter: the rate limiter for threads."""

from os import getpid
from typing import overload

import redis

from batchlimit.base import forks
from batchlimit.base.blocking import check_recursion_depth, warn_in_loop
from batchlimit.base.decision import Decision, Remains
from batchlimit.base.key import Costs, check_cost, check_key, check_priority
from batchlimit.base.steps import run
from batchlimit.base.unique import Closing
from batchlimit.base.waiting import LONG_AGO, NO_WAIT, deadline
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace import several
from batchlimit.keyspace.base_limiter import BaseRateLimiter
from batchlimit.keyspace.reservation import JointReservation, OnError, Reservation, estimated, fitting
from batchlimit.keyspace.spending import Settled
from batchlimit.quota.template import Cost, Key, Template
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.tokens import ONE
from batchlimit.stores.open import open_store
from batchlimit.stores.protocols import Store, no_store
from batchlimit.stores.redis import RedisStore
from batchlimit.sync.handles import KeyHandle, Limit
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.registry import Registry
from batchlimit.sync.waiting_thread import WaitingCoroutine, WaitingThread


def _store_of(store: object, prefix: str) -> Store | TypeError:
    if isinstance(store, redis.Redis | redis.RedisCluster):
        return RedisStore(store, prefix=prefix)
    return store if isinstance(store, Store) else no_store(store, for_tasks=False)


class RateLimiter(BaseRateLimiter["redis.Redis | redis.RedisCluster | Store"], Closing):
    """Admits calls by key under one exact limit for all processes that share the store.

    One limiter serves all threads of a process, and works on in a forked child. It decides most calls from memory, by
    tokens that it has leased from the store. It has 15 public methods: the calls that the README tells of.

    Every method raises LimiterClosed after `close`. A cost is a whole number of tokens, and 0 is always admitted. A
    cost that is negative or above the burst raises ValueError, and so does a key without a quota. A wrong type raises
    TypeError.

    Args:
        store: a redis-py client or a Store that the caller made; the limiter never closes it.
        quota: a Quota, text such as "100/s burst 200", a dict from keys and glob patterns to those, a
            `batchlimit.rules.RuleFile`, which may be watched, or a function of the key. The limiter asks a function
            once for each key and keeps its first answer, for the last `max_keys` keys and at least 10,000.
        prefix: what the names of the buckets begin with (default "batchlimit"); a Store of your own ignores it.
        sizer: how many tokens to lease at a time (default TimeBatch()).
        idle_after: seconds after which an unused key leaves the memory (default 10).
        fill: how full a bucket begins anew after the store lost it: "full", "share" (default), which is this instance's
            share of the burst, or "empty".
        weight: where tokens are short, an instance of weight 2 gets twice as many as one of weight 1 (default 1).
        max_keys: keys in memory at once (default 100,000). Beyond it the least recently used leave, except keys with
            waiters, a request in flight or tokens owed.
        deadline: seconds that a call of the store may take (default 0.05). The time of connecting comes on top as long
            as the store has never answered.
        on_failure: what callers get while the store is away: "closed" (default) refuses, "open" admits, "local" or
            FailurePolicy.local(instances=n) admits this instance's share; or a dict from keys and patterns, with "*".
        revision: the number of these quotas (default 0). While processes differ, as in a deployment, all obey those of
            the highest number, and of equal ones those of the limiter made last. A minute after the last request of
            such a process the others have their own back, so after a rollback too.
        mode: "enforce" (default), or "shadow": decide and count, and admit all the same; or a dict from keys and
            patterns to those. `statistics().shadow_refused` counts what was to be refused; no caller waits for tokens.
        clock: returns seconds and never runs backwards (default None: the system's clock, which counts sleep).

    Raises:
        ValueError, TypeError: an argument cannot work, such as a quota with a typo.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.stores import MemoryStore
        >>> with RateLimiter(MemoryStore(), {"search:*": "2/hour", "*": "1000/s"}) as limiter:
        ...     [limiter.try_acquire("search:ann") for _ in range(3)]
        [True, True, False]
    """

    _open = staticmethod(open_store)
    _opened = staticmethod(_store_of)
    _keep = Registry
    _registry: Registry
    _entries: dict[str, KeyEntry]

    def try_acquire(self, key: str, cost: int = 1) -> bool:
        # `FreeTokens.take` and `Admission.deny` flattened: a method call would cost as much as the rest of a hit.
        # tests/apis/test_shortcut.py compares the two. The loop steps an iterator once: next() took 20 ns more.
        try:
            entry = self._entries[key]
        except (KeyError, TypeError):
            return self._try(key, cost)
        leased = entry.tokens
        if cost is ONE:
            for before in leased.lock_free:
                if self._clock() < before:
                    return True
                entry.took_late(cost)
                break
            else:
                if self._clock() < leased.denied_until:
                    leased.refused += 1
                    return False
        elif cost.__class__ is int and 0 < cost <= leased.free and not entry.lock._is_owned():
            with entry.lock:  # no call inside: all threads would wait for one that lost the GIL there
                left = leased.free - cost
                if left >= leased.low_watermark:
                    leased.free = left
                    before = leased.expires
                else:
                    before = LONG_AGO
            if self._clock() < before:
                return True
            if before != LONG_AGO:
                entry.took_late(cost)
        return self._try_at(entry, key, cost)

    def acquire(self, key: str, cost: int = 1, *, timeout: float | None = None, priority: int = 1) -> None:
        if priority is not ONE:
            check_priority(priority)
        self._acquire(key, cost, deadline(timeout, self._clock()), priority)

    def decide(self, key: str, cost: int = 1) -> Decision:
        return self._admit(key, cost, NO_WAIT).decision(self._clock())

    def peek(self, key: str) -> Decision:
        return run(self._registry.peek(key))

    def refund(self, key: str, cost: int = 1) -> None:
        check_cost(cost, self._registry.entry(key).reservoir.state.most, key)
        warn_in_loop()
        self._adjust(key, -cost)

    def pause(self, key: str, seconds: float, *, why: str = "") -> None:
        run(self._registry.pause(key, seconds, why))

    def resume(self, key: str) -> bool:
        return run(self._registry.resume(key))

    @overload  # type: ignore[override]
    def reserve(
        self, key: str, cost: int, *, timeout: float | None = None, priority: int = 1, on_error: OnError = "keep"
    ) -> Reservation: ...
    @overload
    def reserve(
        self, key: Costs, *, timeout: float | None = None, priority: int = 1, on_error: OnError = "keep"
    ) -> JointReservation: ...
    def reserve(
        self,
        key: str | Costs,
        cost: int | None = None,
        *,
        timeout: float | None = None,
        priority: int = 1,
        on_error: OnError = "keep",
    ) -> Reservation | JointReservation:
        costs = estimated(key, cost, on_error)
        with fitting(self._registry, costs):
            self.acquire_all(costs, timeout=timeout, priority=priority)
        return (JointReservation if cost is None else Reservation)(costs, on_error, self._adjust)

    def bucket(self, key: str) -> KeyHandle:
        check_key(key)
        return KeyHandle(self, key)

    def limit(self, key: Key, *, cost: Cost = 1, timeout: float | None = None) -> Limit:
        return Limit(self, Template(key, cost), timeout)

    def acquire_all(self, costs: Costs, *, timeout: float | None = None, priority: int = 1) -> None:
        check_priority(priority)
        until = deadline(timeout, self._clock())
        if costs.__class__ is dict and len(costs) == 1:  # it need not hold one key's tokens for another's
            ((key, cost),) = costs.items()
            self._acquire(key, cost, until, priority)
            return
        run(several.acquire_all(self._registry, costs, until, priority))

    def decide_all(self, costs: Costs) -> dict[str, Decision]:
        if (known := self._registry.memory.decide(costs)) is not None:
            return known
        if costs.__class__ is dict and len(costs) == 1:  # by one spend, if its key is not in use
            ((key, cost),) = costs.items()
            return {key: self._admit(key, cost, NO_WAIT).decision(self._clock())}
        return run(several.decide_all(self._registry, costs))

    def take_leased(self, costs: dict[str, int]) -> dict[str, Remains] | None:
        return self._registry.memory.take_leased(costs)

    def line_up(self, key: str, wait: float, spacing: float, *, longest: float = 600.0) -> float:
        return run(self._registry.line_up(key, wait, spacing, longest))

    def close(self) -> None:
        self._registry.close()

    def _acquire(self, key: str, cost: int, until: float, priority: int) -> None:
        """Wait until a call is admitted; RateLimited if that cannot be in time."""
        result = self._admit(key, cost, until, priority)
        if isinstance(result, AdmissionResult) and not result.admitted:
            raise result.refusal(key, self._clock())

    async def _acquire_in_loop(self, key: str, cost: int, until: float) -> None:
        """Do the same in a coroutine, and do not block its event loop."""
        result = None
        while result is None:
            entry = self._registry.live_entry(key)
            check_cost(cost, entry.reservoir.state.most, key)
            if entry.take(cost) != LONG_AGO:
                return
            result = await WaitingCoroutine(entry, cost, until).awaited()
        if not result.admitted:
            raise result.refusal(key, self._clock())

    def _try(self, key: str, cost: int) -> bool:
        """Admit a call or not, without waiting for tokens; False also if the store is away."""
        try:
            return self._admit(key, cost, NO_WAIT).admitted
        except StoreUnavailable:
            return False

    def _try_at(self, entry: KeyEntry, key: str, cost: int) -> bool:
        """Do the same at a known key entry, by the first of its rules that decides."""
        is_bad = cost.__class__ is not int or not 0 < cost <= entry.reservoir.state.largest_cost
        if is_bad or getpid() != forks.process:
            return self._try(key, cost)
        reservoir, now = entry.reservoir, self._clock()
        if reservoir.state.is_short(now):
            if now < entry.tokens.denied_until:
                entry.tokens.refused += cost
                return False
            if reservoir.forecast.denies(cost, now) and entry.locked(lambda: reservoir.admission.deny(cost, now)):
                return False
        if entry.tokens.available and entry.take(cost) != LONG_AGO:  # pending tokens are none: those a miss finds
            return True
        if (gate := entry.refill_gate) is not None:
            warn_in_loop()
            if gate.acquire(timeout=entry.store.brief):
                try:
                    return entry.take(cost) != LONG_AGO or self._try_store(entry, key, cost)
                finally:
                    gate.release()
            # The store is away, or the thread inside was interrupted and never leaves.
            entry.refill_gate = None if entry.refill_gate is gate else entry.refill_gate
        return self._try_store(entry, key, cost)

    def _adjust(self, key: str, tokens: int) -> None:
        """Charge tokens that were used already, or refund them where they are less than 0."""
        while tokens < 0 and not self._registry.live_entry(key).refund(-tokens):
            pass  # it had just retired
        while tokens > 0 and not self._registry.live_entry(key).debit(tokens):
            pass  # it had just retired

    def _admit(self, key: str, cost: int, until: float, priority: int = 1) -> Settled:
        """Admit or refuse a call, from memory or after waiting; raises what went wrong."""
        registry = self._registry
        if getpid() != forks.process:
            forks.begin_anew()
        while True:
            is_in_use = key.__class__ is str and key in registry.entries
            if not is_in_use and (answer := registry.spends.one(key, cost, until, priority)) is not None:
                return answer
            entry = registry.live_entry(key)
            check_cost(cost, entry.reservoir.state.most, key)
            if (before := entry.take(cost)) != LONG_AGO:
                return AdmissionResult.hit(before, entry.reservoir.forecast)
            if (result := self._wait(entry, cost, until, priority)) is not None:
                return result

    def _try_store(self, entry: KeyEntry, key: str, cost: int) -> bool:
        """Admit by what the store grants."""
        try:
            result = self._wait(entry, cost, NO_WAIT)
        except StoreUnavailable:
            return False
        return self._try(key, cost) if result is None else result.admitted

    def _wait(self, entry: KeyEntry, cost: int, until: float, priority: int = 1) -> AdmissionResult | None:
        """Wait in the queue of a key, as first in it by asking the store; None: the key entry has retired."""
        check_recursion_depth()
        return WaitingThread(entry, cost, until, priority=priority).wait()
