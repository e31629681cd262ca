"""What the rate limiters of both APIs share: they are opened by a URL, and counted."""

from collections.abc import Callable
from typing import Any, Protocol, Self

from batchlimit.base.redaction import misplaced
from batchlimit.base.unique import Unique
from batchlimit.overrides.code import CodeFile, CodeSource, rule_of
from batchlimit.overrides.key_rule import ModeSource
from batchlimit.overrides.known import OverridesCache
from batchlimit.overrides.view import LimiterRules
from batchlimit.quota.failure_policy import FailureSource
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import Fill
from batchlimit.reservoir.options import Options, check_seconds
from batchlimit.reservoir.sizing import DEFAULT_SIZER, BatchSizer
from batchlimit.reservoir.statistics import Statistics
from batchlimit.stores.client.syntax import look, sure


class RuleReader(Protocol):
    """Reads overrides."""

    known: OverridesCache


class Registry(Protocol):
    """The keys of a limiter, and its store."""

    @property
    def keys(self) -> int:
        """How many keys are in memory."""
        ...

    @property
    def store(self) -> Any:
        """The store, which has an `address`."""
        ...

    @property
    def rules(self) -> RuleReader:
        """What it knows of the overrides."""
        ...

    @property
    def rule(self) -> Callable[[str], Quota]:
        """The quota of a key by the code."""
        ...

    @property
    def file(self) -> CodeFile | None:
        """The file that says the quotas, if one does."""
        ...

    def own_store(self, connect_timeout: float) -> None:
        """Close the store with the limiter."""
        ...

    def statistics(self) -> Statistics:
        """Add up what all keys did."""
        ...


class BaseRateLimiter(Unique):
    """A registry of keys. Each of the two APIs has its own stores, and its own way to wait."""

    _registry: Registry
    _open: Callable[..., Any]
    """Opens a store of this API at an address."""

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
        check_seconds("connect_timeout", connect_timeout)
        options = Options(sizer, idle_after, fill, weight, max_keys, deadline, on_failure, revision, mode)
        store = cls._open(address, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
        make: Callable[..., Self] = cls
        limiter = make(store, quota, clock=clock, **options.as_arguments())
        limiter._registry.own_store(connect_timeout)
        return limiter

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._registry.store.address}: {self._registry.keys} keys>"

    @property
    def rules(self) -> LimiterRules:
        """The quotas that operators have set meanwhile, as far as this limiter has heard of them.

        Example:
            >>> from batchlimit import RateLimiter
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
            >>> from batchlimit import RateLimiter
            >>> limiter = RateLimiter.from_url("memory://", "2/hour")
            >>> limiter.try_acquire("ann")
            True
            >>> limiter.statistics().admitted
            1
        """
        return self._registry.statistics()
