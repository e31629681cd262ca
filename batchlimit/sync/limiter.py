"""RateLimiter: the rate limiter for threads."""

import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

import redis

from batchlimit.base.clock import steady
from batchlimit.base.decision import Decision, Remains
from batchlimit.base.living import register
from batchlimit.base.waiting import deadline
from batchlimit.overrides.code import CodeSource, rule_of
from batchlimit.overrides.key_rule import ModeSource
from batchlimit.quota.failure_policy import FailureSource
from batchlimit.quota.key import check_key
from batchlimit.quota.template import Cost, Key, Template
from batchlimit.reservoir.bucket_view import Fill
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.sizing import DEFAULT_SIZER, BatchSizer
from batchlimit.stores.open import open_store
from batchlimit.stores.protocols import Store, no_store
from batchlimit.stores.redis import RedisStore
from batchlimit.sync import pausing
from batchlimit.sync.acquire_all import AcquireAll
from batchlimit.sync.decide_all import decide_from_memory, spend_cold, take_leased
from batchlimit.sync.decorator import Limit
from batchlimit.sync.key_calls import KeyCalls
from batchlimit.sync.key_handle import KeyHandle
from batchlimit.sync.registry import Registry


class RateLimiter(KeyCalls):
    """Admits calls by key under one exact limit for all processes that share the store.

    One limiter serves all threads of a process, and works on in a forked child. It decides most calls from memory, by
    tokens that it has leased from the store.

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

    def __init__(
        self,
        store: "redis.Redis | redis.RedisCluster | Store",
        quota: CodeSource,
        *,
        prefix: str = "batchlimit",
        sizer: BatchSizer = DEFAULT_SIZER,
        idle_after: float = 10.0,
        fill: Fill = "share",
        weight: int = 1,
        max_keys: int = 100_000,
        deadline: float = 0.05,
        on_failure: FailureSource = "closed",
        revision: int = 0,
        mode: ModeSource = "enforce",
        clock: Callable[[], float] | None = None,
    ) -> None:
        rule, clock = rule_of(quota, max_keys), clock or steady
        clients = (redis.Redis, redis.RedisCluster)
        opened = RedisStore(store, prefix=prefix) if isinstance(store, clients) else store
        if not isinstance(opened, Store):
            wrong = no_store(store, for_tasks=False)
            del store, opened  # the frames of a traceback show no password
            raise wrong
        options = Options(sizer, idle_after, fill, weight, max_keys, deadline, on_failure, revision, mode)
        super().__init__(Registry(opened, rule, options, clock))
        weakref.finalize(self, self._registry.abandon).atexit = False  # at exit the registries close by themselves
        register(self)

    def bucket(self, key: str) -> KeyHandle:
        """Return the limiter of one key, for loops in which even to look the key up takes too long.

        Args:
            key: what is limited.

        Returns:
            A KeyHandle, with the limiter's methods but for the key.

        Raises:
            ValueError, TypeError: the key is empty, or no str.

        Example:
            >>> ann = RateLimiter.from_url("memory://", "2/hour").bucket("ann")
            >>> ann.try_acquire()
            True
        """
        check_key(key)
        return KeyHandle(self, key)

    def limit(self, key: Key, *, cost: Cost = 1, timeout: float | None = None) -> Limit:
        """Return a decorator, or a context manager, that acquires before each call of a function, or each block.

        Args:
            key: text, whose fields name the function's parameters, as in "search:{user}"; or a function of the call's
                arguments that returns the key.
            cost: whole tokens (default 1), or a function of the call's arguments that returns them.
            timeout: seconds that each call waits at most; 0 does not wait (default None: no limit).

        Returns:
            A Limit, for functions and coroutine functions alike. Their calls raise what `acquire` raises.

        Raises:
            ValueError, TypeError: an argument cannot work, such as an empty key.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "2/hour")
            >>> @limiter.limit("search:{user}")
            ... def search(user):
            ...     return f"hits for {user}"
            >>> search("ann")
            'hits for ann'
        """
        return Limit(self, Template(key, cost), timeout)

    def acquire_all(
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
            >>> limiter = RateLimiter.from_url("memory://", {"user:*": "2/hour", "*": "1000/s"})
            >>> limiter.acquire_all({"user:ann": 1, "everybody": 1}, timeout=0)
        """
        until = deadline(timeout, self._clock())
        told = spend_cold(self._registry.spends, self._entries, costs, self._clock)
        if told is None or not all(told.values()):
            AcquireAll(costs, self._registry).acquire(until)

    def decide_all(self, costs: Mapping[str, int] | Iterable[tuple[str, int]]) -> dict[str, Decision]:
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
            >>> limiter = RateLimiter.from_url("memory://", {"user:*": "1/hour", "*": "9/hour"})
            >>> for _ in range(2):
            ...     decisions = limiter.decide_all({"user:ann": 1, "everybody": 1})
            ...     print({key: decision.allowed for key, decision in decisions.items()})
            {'user:ann': True, 'everybody': True}
            {'user:ann': False}
        """
        if (known := decide_from_memory(self._entries, costs, self._clock)) is not None:
            return known
        if costs.__class__ is dict and len(costs) == 1:  # by one spend, if its key is not in use
            ((key, cost),) = costs.items()
            return {key: self.decide(key, cost)}
        if (known := spend_cold(self._registry.spends, self._entries, costs, self._clock)) is not None:
            return known
        return AcquireAll(costs, self._registry).decide()

    def take_leased(self, costs: dict[str, int]) -> dict[str, Remains] | None:
        """Charge all of several keys by tokens that this process has leased, or none of them; the store is not asked.

        For callers that decide for each request, and have no use for a Decision.

        Args:
            costs: whole tokens by key.

        Returns:
            By key, what this process could still admit, the Quota that holds, and which of its bandwidths binds, as a
            Decision tells it; None: nothing was charged, so ask `decide_all`. It says what is wrong, too: nothing is
            raised here.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", {"user:*": "90/hour", "*": "90/hour"})
            >>> costs = {"user:ann": 1, "everybody": 1}
            >>> limiter.take_leased(costs)  # nothing is leased yet
            >>> all((limiter.decide_all(costs)).values())
            True
        """
        return take_leased(self._entries, costs, self._clock)

    def line_up(self, key: str, wait: float, spacing: float, *, longest: float = 600.0) -> float:
        """Give the caller its turn among all of the fleet that come back to a key later, one after the other.

        Nothing is charged: it says when to come and ask. So refused work that is put off does not come back as a herd.

        Args:
            key: what is limited.
            wait: seconds until the first turn, if nobody is in line: such as `retry_after`.
            spacing: seconds from this turn to the next: what the quota takes to refill the cost.
            longest: seconds (default 600); a turn that is later is told, and stays free.

        Returns:
            Seconds until the turn.

        Raises:
            StoreUnavailable: the store is away.
            LimiterClosed, ValueError, TypeError: as the class says; or the store has no lines.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "2/s")
            >>> [round(limiter.line_up("mail", 1.0, 0.5), 1) for _ in range(3)]
            [1.0, 1.5, 2.0]
        """
        return pausing.line_up(self._registry, key, wait, spacing, longest)

    def close(self) -> None:
        """Give all tokens back, wake all waiters with LimiterClosed, and close the store if the limiter opened it.

        A `with` block does the same at its end. To close twice is no error.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "2/hour")
            >>> limiter.close()
            >>> limiter.try_acquire("ann")
            Traceback (most recent call last):
            ...
            batchlimit.errors.LimiterClosed: this limiter was closed
        """
        self._registry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
