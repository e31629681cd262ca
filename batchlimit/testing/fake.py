"""fake_limiter and fake_async_limiter: limiters that follow a script, for tests of what calls them."""

import math
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from batchlimit.aio.awaitable import Answer, Pending
from batchlimit.aio.limiter import AsyncRateLimiter
from batchlimit.base.decision import Decision
from batchlimit.base.key import by_name, check_cost, check_costs, check_key, check_priority
from batchlimit.base.waiting import patience
from batchlimit.errors import RateLimited, StoreUnavailable
from batchlimit.quota.lookup import QuotaSource, quota_rule
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.statistics import decision
from batchlimit.reservoir.waiter import Admit, Refuse
from batchlimit.stores.memory import MemoryStore
from batchlimit.sync.limiter import RateLimiter

_LATER = 60.0


class Script:
    """What a fake limiter was told to do, and what it was asked.

    Attributes:
        calls: each call that asked for tokens, as (key, cost), in order; those of `acquire_all` key by key.
        refunds: each refund, as (key, tokens); what a reservation settled for less too.

    Example:
        >>> from batchlimit.testing import fake_limiter
        >>> limiter = fake_limiter()
        >>> limiter.script.refuse("search:*", retry_after=30.0)
        >>> limiter.decide("search:ann").retry_after
        30.0
        >>> limiter.script.calls
        [('search:ann', 1)]
    """

    def __init__(self, quota: QuotaSource, refuses: Mapping[str, float], fails: Iterable[str]) -> None:
        self.rule = quota_rule(quota)
        self.calls: list[tuple[str, int]] = []
        self.refunds: list[tuple[str, int]] = []
        self._fates: dict[str, float | None] = dict(refuses) | dict.fromkeys(fails)

    def __repr__(self) -> str:
        return f"<Script: {self._fates}>"

    def refuse(self, key: str, retry_after: float = _LATER) -> None:
        """Refuse calls for a key, or for keys of a pattern such as `search:*`, from now on.

        Args:
            key: the key or pattern.
            retry_after: what refusals say (seconds, default 60). A caller whose `timeout` is longer is admitted.
        """
        self._fates[key] = retry_after

    def fail(self, key: str) -> None:
        """Raise StoreUnavailable for a key, or for keys of a pattern, from now on.

        Args:
            key: the key or pattern.
        """
        self._fates[key] = None

    def admit(self, key: str) -> None:
        """Take back `refuse` or `fail`.

        Args:
            key: the key or pattern, as it was told then.
        """
        self._fates.pop(key, None)

    def _ask(self, key: str, cost: int, seconds: float = 0.0) -> Decision:
        """Note a call that waits so many seconds at most, and decide it; raises StoreUnavailable."""
        told = self._look(key, cost, seconds)
        self.calls.append((key, cost))
        return told

    def _look(self, key: str, cost: int, seconds: float = 0.0) -> Decision:
        """Decide a call without noting it; raises StoreUnavailable."""
        quota = self.rule(check_key(key))
        check_cost(cost, quota.largest_cost, key)
        fate = by_name({name: (wait,) for name, wait in self._fates.items()})(key)
        if fate is None or cost == 0 or (fate[0] is not None and fate[0] <= seconds):
            return decision(quota, quota.largest_cost, 0.0, "local")
        if fate[0] is None:
            raise StoreUnavailable(f"the store is down for {key!r}: its script says so", key=key, code="REFUSED")
        return decision(quota, 0, fate[0], "denied")

    def _admit(self, key: str, cost: int, until: float) -> AdmissionResult:
        """Note a call that waits until then, by a clock that stands at 0; raises StoreUnavailable."""
        told = self._ask(key, cost, max(0.0, until))
        forecast: Any = SimpleNamespace(told=lambda *_: told)
        return AdmissionResult(Admit(math.inf) if told else Refuse(told.retry_after), False, False, forecast)

    def _decide_all(self, costs: object, seconds: float = 0.0) -> dict[str, Decision]:
        """Note a call for several keys; the decisions, or that on the key that is refused."""
        checked = check_costs(costs)
        told = {key: self._ask(key, cost, seconds) for key, cost in checked.items()}
        refused = {key: each for key, each in told.items() if not each}
        return dict(list(refused.items())[:1]) or told

    def _acquire_all(self, costs: object, timeout: float | None, priority: int) -> None:
        """Note a call for several keys; RateLimited if one of them is refused."""
        check_priority(priority)
        for key, told in self._decide_all(costs, patience(timeout)).items():
            if not told:
                raise RateLimited(key, told.retry_after, told)

    def _adjust(self, key: str, tokens: int) -> None:
        """Note tokens that a reservation settled for less; for more, a call."""
        (self.refunds if tokens < 0 else self.calls).append((key, abs(tokens)))


class FakeLimiter(RateLimiter):
    """A RateLimiter that does as its `script` says; `fake_limiter` makes it.

    Example:
        >>> from batchlimit.testing import fake_limiter
        >>> fake_limiter(refuses={"ann": 30.0})
        <FakeLimiter on memory://: 0 keys>
    """

    is_fake = True

    def __init__(self, script: Script) -> None:
        super().__init__(MemoryStore(), script.rule, clock=lambda: 0.0)
        self.script, self._entries = script, {}
        self._adjust = script._adjust  # type: ignore[method-assign]

    def _admit(self, key: str, cost: int, until: float, priority: int = 1) -> AdmissionResult:
        return self.script._admit(key, cost, until)

    async def _acquire_in_loop(self, key: str, cost: int, until: float) -> None:
        self._acquire(key, cost, until, 1)

    def acquire_all(self, costs: object, *, timeout: float | None = None, priority: int = 1) -> None:
        self.script._acquire_all(costs, timeout, priority)

    def decide_all(self, costs: object) -> dict[str, Decision]:
        return self.script._decide_all(costs)

    def peek(self, key: str) -> Decision:
        return self.script._look(key, 1)

    def refund(self, key: str, cost: int = 1) -> None:
        self.script._adjust(key, -cost)


class AsyncFakeLimiter(AsyncRateLimiter):
    """An AsyncRateLimiter that does as its `script` says; `fake_async_limiter` makes it.

    Example:
        >>> from batchlimit.testing import fake_async_limiter
        >>> fake_async_limiter(refuses={"ann": 30.0})
        <AsyncFakeLimiter on memory://: 0 keys>
    """

    is_fake = True

    def __init__(self, script: Script) -> None:
        super().__init__(MemoryStore(), script.rule, clock=lambda: 0.0)
        self.script, self._entries = script, {}
        self._adjust = script._adjust  # type: ignore[method-assign]

    async def _admit(self, key: str, cost: int, until: float, priority: int = 1) -> AdmissionResult:
        return self.script._admit(key, cost, until)

    async def acquire_all(self, costs: object, *, timeout: float | None = None, priority: int = 1) -> None:
        self.script._acquire_all(costs, timeout, priority)

    async def decide_all(self, costs: object) -> dict[str, Decision]:
        return self.script._decide_all(costs)

    def peek(self, key: str) -> Answer[Decision]:
        async def look() -> Decision:
            return self.script._look(key, 1)

        return Pending(look())

    async def refund(self, key: str, cost: int = 1) -> None:
        self.script._adjust(key, -cost)


def fake_limiter(
    quota: QuotaSource = "1_000_000/s", *, refuses: Mapping[str, float] | None = None, fails: Iterable[str] = ()
) -> FakeLimiter:
    """Return a RateLimiter for a unit test of what calls it: it admits all calls but those that its script refuses.

    It has no store, no clock and no thread, counts no tokens, and never waits. `limiter.script` tells what it was
    asked, and changes what it does. Frozen time and `limiting_off` do not concern it.

    Args:
        quota: as of RateLimiter; decisions tell of it (default "1_000_000/s").
        refuses: seconds after which to come back, by the key or pattern that is refused (default None: no key).
        fails: keys or patterns whose calls raise StoreUnavailable (default none).

    Returns:
        The limiter.

    Example:
        >>> from batchlimit.testing import fake_limiter
        >>> limiter = fake_limiter(refuses={"search:ann": 30.0})
        >>> limiter.try_acquire("search:bob"), limiter.try_acquire("search:ann")
        (True, False)
        >>> limiter.script.calls
        [('search:bob', 1), ('search:ann', 1)]
    """
    return FakeLimiter(Script(quota, refuses or {}, fails))


def fake_async_limiter(
    quota: QuotaSource = "1_000_000/s", *, refuses: Mapping[str, float] | None = None, fails: Iterable[str] = ()
) -> AsyncFakeLimiter:
    """Return an AsyncRateLimiter that follows a script; see `fake_limiter`.

    Args:
        quota, refuses, fails: as of `fake_limiter` (default: all calls are admitted).

    Returns:
        The limiter.

    Example:
        >>> from batchlimit.testing import fake_async_limiter
        >>> limiter = fake_async_limiter(fails=["*"])
        >>> await limiter.decide("ann")
        Traceback (most recent call last):
        ...
        batchlimit.errors.StoreUnavailable: the store is down for 'ann': its script says so
    """
    return AsyncFakeLimiter(Script(quota, refuses or {}, fails))
