"""What the rate limiters of both APIs share: they are opened by a URL, and counted."""

import weakref
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from batchlimit.base.clock import steady
from batchlimit.base.key import Costs
from batchlimit.base.redaction import misplaced
from batchlimit.base.setting import function
from batchlimit.base.unique import Unique, register
from batchlimit.keyspace.limiter_calls import LimiterCalls
from batchlimit.quota.failure_policy import FailureSource
from batchlimit.quota.overrides.code import CodeSource, rule_of
from batchlimit.quota.overrides.known import LimiterRules
from batchlimit.quota.overrides.override import ModeSource
from batchlimit.quota.template import Cost, Key
from batchlimit.reservoir.bucket_view import Fill
from batchlimit.reservoir.options import LONGEST_CALL, Options, check_seconds
from batchlimit.reservoir.sizing import DEFAULT_SIZER, BatchSizer
from batchlimit.reservoir.statistics import Statistics
from batchlimit.stores.client.address import look, sure

S = TypeVar("S")
"""The stores that a limiter takes."""


class BaseRateLimiter(LimiterCalls, Unique, Generic[S]):
    """A registry of keys. Each of the two APIs has its own stores, and its own way to wait.

    It documents the methods of both. The examples are those of RateLimiter; tasks await the same.
    """

    _registry: Any
    """A Registry of this API."""
    _open: Callable[..., Any]
    """Opens a store of this API at an address."""
    _opened: Callable[[Any, str], Any]
    """Returns the store that a caller has handed over, by its prefix; or the TypeError that says what is wrong."""
    _keep: Callable[..., Any]
    """Makes the Registry."""

    def __init__(
        self,
        store: S,
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
        rule, clock = rule_of(quota, max_keys), steady if clock is None else function("clock", clock)
        opened = self._opened(store, prefix)
        if isinstance(opened, TypeError):
            del store  # the frames of a traceback show no password
            raise opened
        options = Options(sizer, idle_after, fill, weight, max_keys, deadline, on_failure, revision, mode)
        self._use(self._keep(opened, rule, options, clock))
        weakref.finalize(self, self._registry.abandon).atexit = False  # at exit it closes by itself, or has no loop
        register(self)

    @classmethod
    def from_url(
        cls,
        url: str,
        quota: CodeSource,
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
        revision: int = 0,
        mode: ModeSource = "enforce",
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Open the store at `url`; `close` closes it with the limiter.

        The limiter connects at the first call. Only embedded:// starts its server here, and blocks meanwhile.

        Args:
            url: redis://, rediss:// (TLS), unix://, valkey://, valkeys://, redis+cluster://, redis+sentinel://,
                memory:// (this process alone) or embedded:// (a Valkey server that the limiter starts and stops).
            connect_timeout: seconds that a connection may take (default 1).
            quota, prefix, sizer, idle_after, fill, weight, max_keys: as for the class.
            deadline, on_failure, revision, mode, clock: as for the class.

        Returns:
            The limiter.

        Raises:
            ValueError, TypeError: the URL cannot be read or its scheme is unknown, or another argument cannot work.

        Example:
            >>> from batchlimit import AsyncRateLimiter, RateLimiter
            >>> RateLimiter.from_url("memory://", "100/s burst 200").try_acquire("ann")
            True
            >>> AsyncRateLimiter.from_url("memory://", "100/s burst 200")
            <AsyncRateLimiter on memory://: 0 keys>
        """
        found = look(url)
        wrong = found if isinstance(found, Exception) else misplaced(quota=quota, on_failure=on_failure)
        del url  # the frames of a traceback show no password
        if wrong is not None:
            del quota, prefix, on_failure
            raise wrong
        address = sure(found)
        rule_of(quota)  # everything is checked before a server is started: a typo must not cost that
        check_seconds("connect_timeout", connect_timeout, most=LONGEST_CALL)
        options = Options(sizer, idle_after, fill, weight, max_keys, deadline, on_failure, revision, mode)
        store = cls._open(address, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
        make: Callable[..., Self] = cls
        limiter = make(store, quota, clock=clock, **options.as_arguments())
        limiter._registry.own_store(connect_timeout)
        return limiter

    def _use(self, registry: Any) -> None:
        self._registry, self._entries, self._clock = registry, registry.entries, registry.clock

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._registry.store.address}: {self._registry.keys} keys>"

    @property
    def rules(self) -> LimiterRules:
        """The quotas that operators have set meanwhile, as far as this limiter has heard of them.

        Example:
            >>> print(RateLimiter.from_url("memory://", "2/hour").rules.explain("ann"))
            ann: 2/h, by the code
        """
        registry = self._registry
        return LimiterRules(registry.rules.known, registry.rule, registry.file)

    def statistics(self) -> Statistics:
        """Return what this limiter has done so far; it adds up all keys, so not for every call.

        Returns:
            The Statistics of this limiter alone, not of the other processes.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "2/hour")
            >>> limiter.try_acquire("ann")
            True
            >>> limiter.statistics().admitted
            1
        """
        return self._registry.statistics()  # type: ignore[no-any-return]

    def bucket(self, key: str) -> Any:
        """Return the limiter of one key, for loops in which even to look the key up takes too long.

        Args:
            key: what is limited.

        Returns:
            A KeyHandle or AsyncKeyHandle, with the limiter's methods but for the key.

        Raises:
            ValueError, TypeError: the key is empty, or no str.

        Example:
            >>> ann = RateLimiter.from_url("memory://", "2/hour").bucket("ann")
            >>> ann.try_acquire()
            True
        """

    def limit(self, key: Key, *, cost: Cost = 1, timeout: float | None = None) -> Any:
        """Return a decorator, or a context manager, that acquires before each call of a function, or each block.

        Args:
            key: text, whose fields name the function's parameters, as in "search:{user}"; or a function of the call's
                arguments that returns the key.
            cost: whole tokens (default 1), or a function of the call's arguments that returns them.
            timeout: seconds that each call waits at most; 0 does not wait (default None: no limit).

        Returns:
            A Limit, for functions and coroutine functions alike, or an AsyncLimit, for coroutine functions and
            `async with`. Their calls raise what `acquire` raises.

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

    def acquire_all(self, costs: Costs, *, timeout: float | None = None, priority: int = 1) -> Any:
        """Wait until all of several keys are charged; none of them is until all can be.

        Args:
            costs: whole tokens by key, as a dict or as pairs.
            timeout, priority: as of `acquire`.

        Raises:
            RateLimited: `timeout` cannot be met; its `key` is the one that is short.
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", {"user:*": "2/hour", "*": "1000/s"})
            >>> limiter.acquire_all({"user:ann": 1, "everybody": 1}, timeout=0)
        """

    def decide_all(self, costs: Costs) -> Any:
        """Charge all of several keys now, or none of them, and say what a caller wants to be told.

        `all(decisions.values())` says whether the call may go ahead.

        Args:
            costs: whole tokens by key, as a dict or as pairs.

        Returns:
            A Decision for each key if all are charged; else only the one of the key that is short.

        Raises:
            StoreUnavailable: the store is away and `on_failure` is "closed" for a key; its `key` says which.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", {"user:*": "1/hour", "*": "9/hour"})
            >>> for _ in range(2):
            ...     decisions = limiter.decide_all({"user:ann": 1, "everybody": 1})
            ...     print({key: decision.allowed for key, decision in decisions.items()})
            {'user:ann': True, 'everybody': True}
            {'user:ann': False}
        """

    def take_leased(self, costs: dict[str, int]) -> Any:
        """Charge all of several keys by tokens that this process has leased, or none of them; the store is not asked.

        For callers that decide for each request, and have no use for a Decision. Nothing is awaited in either API.

        Args:
            costs: whole tokens by key.

        Returns:
            By key, what this process could still admit, the Quota that holds, and which of its bandwidths binds, as in
            a Decision. None: nothing was charged, so ask `decide_all`. That says what is wrong, too: nothing is raised
            here.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", {"user:*": "90/hour", "*": "90/hour"})
            >>> costs = {"user:ann": 1, "everybody": 1}
            >>> limiter.take_leased(costs)  # nothing is leased yet
            >>> all(limiter.decide_all(costs).values())
            True
        """

    def line_up(self, key: str, wait: float, spacing: float, *, longest: float = 600.0) -> Any:
        """Give the caller its turn among all of the fleet that come back to a key later, one after the other.

        Nothing is charged: it says when to come and ask. So refused work that is put off comes back bit by bit.

        Args:
            key: what is limited.
            wait: seconds until the first turn, if nobody is in line: such as `retry_after`.
            spacing: seconds from this turn to the next: what the quota takes to refill the cost.
            longest: seconds (default 600); a later turn is returned, and stays free.

        Returns:
            Seconds until the turn.

        Raises:
            StoreUnavailable: the store is away.
            ValueError, TypeError: as the class says; or the store has no lines.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "2/s")
            >>> [round(limiter.line_up("mail", 1.0, 0.5), 1) for _ in range(3)]
            [1.0, 1.5, 2.0]
        """

    def close(self) -> Any:
        """Give all tokens back, wake all waiters with LimiterClosed, and close the store if the limiter opened it.

        A `with` block, or `async with`, does the same at its end. To close twice is no error.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "2/hour")
            >>> limiter.close()
            >>> limiter.try_acquire("ann")
            Traceback (most recent call last):
            ...
            batchlimit.errors.LimiterClosed: this limiter was closed
        """
