"""The asyncio API behind the face of the threaded one, so that one test can be held against both."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from batchlimit import AsyncRateLimiter, Decision, RateLimiter, Statistics
from batchlimit.base.decision import Remains
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.quota.overrides.view import LimiterRules
from batchlimit.quota.quota import Quota
from batchlimit.stores import RedisStore
from tests.awaiting import awaited
from tests.sync.stage import Stage


class _Awaited:
    """A store of the threaded tests for tasks. What blocks in it stops the loop: gates are not for this."""

    is_prompt = True

    def __init__(self, stage: Stage | RedisStore) -> None:
        self._stage = stage
        self.address = stage.address

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        return self._stage.take(key, quota, ask)

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        return self._stage.give_back(key, quota, back)

    async def peek(self, key: str, quota: Quota) -> Level:
        return self._stage.peek(key, quota)

    def part(self, key: str) -> str:
        return self._stage.part(key)

    async def probe(self, key: str) -> None:
        self._stage.probe(key)

    def after_fork(self) -> None:
        self._stage.after_fork()

    def renew(self) -> None:
        pass

    async def disconnect(self) -> None:
        pass

    async def aclose(self) -> None:
        self._stage.close()


class BlockingReservation:
    """An AsyncReservation for a thread, or an AsyncJointReservation."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def costs(self) -> dict[str, int]:
        found: dict[str, int] = self._inner.costs
        return found

    @property
    def cost(self) -> int:
        return int(self._inner.cost)

    @property
    def settled(self) -> bool:
        return bool(self._inner.settled)

    def settle(self, actual: Any) -> None:
        awaited(self._inner.settle, actual)

    def __enter__(self) -> Self:
        awaited(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        awaited(self._inner.__aexit__, kind, error, trace)


class Blocking:
    """An AsyncRateLimiter for threads."""

    def __init__(self, store: Any, quota: Any, **options: Any) -> None:
        self._use(
            AsyncRateLimiter(_Awaited(store) if isinstance(store, Stage | RedisStore) else store, quota, **options)
        )

    def _use(self, inner: AsyncRateLimiter) -> None:
        self._inner = inner

    @classmethod
    def from_url(cls, url: str, quota: Any, **options: Any) -> Self:
        found = cls.__new__(cls)
        found._use(AsyncRateLimiter.from_url(url, quota, **options))
        return found

    def try_acquire(self, key: Any, cost: Any = 1) -> bool:
        return bool(awaited(self._inner.try_acquire, key, cost))

    def acquire(self, key: Any, cost: Any = 1, *, timeout: Any = None, priority: Any = 1) -> None:
        awaited(self._inner.acquire, key, cost, timeout=timeout, priority=priority)

    def decide(self, key: Any, cost: Any = 1) -> Decision:
        found: Decision = awaited(self._inner.decide, key, cost)
        return found

    def peek(self, key: Any) -> Decision:
        found: Decision = awaited(self._inner.peek, key)
        return found

    def refund(self, key: Any, cost: Any = 1) -> None:
        awaited(self._inner.refund, key, cost)

    def pause(self, key: Any, seconds: Any, *, why: Any = "") -> None:
        awaited(self._inner.pause, key, seconds, why=why)

    def resume(self, key: Any) -> bool:
        return bool(awaited(self._inner.resume, key))

    def line_up(self, key: Any, wait: Any, spacing: Any) -> float:
        return float(awaited(self._inner.line_up, key, wait, spacing))

    def reserve(
        self, key: Any, cost: Any = None, *, timeout: Any = None, priority: Any = 1, on_error: Any = "keep"
    ) -> BlockingReservation:
        options = {"timeout": timeout, "priority": priority, "on_error": on_error}
        return BlockingReservation(awaited(self._inner.reserve, key, cost, **options))

    def acquire_all(
        self, costs: Mapping[str, int] | Iterable[tuple[str, int]], *, timeout: Any = None, priority: Any = 1
    ) -> None:
        awaited(self._inner.acquire_all, costs, timeout=timeout, priority=priority)

    def decide_all(self, costs: Mapping[str, int] | Iterable[tuple[str, int]]) -> dict[str, Decision]:
        found: dict[str, Decision] = awaited(self._inner.decide_all, costs)
        return found

    def take_leased(self, costs: dict[str, int]) -> dict[str, Remains] | None:
        async def take() -> dict[str, Remains] | None:
            return self._inner.take_leased(costs)

        found: dict[str, Remains] | None = awaited(take)
        return found

    def statistics(self) -> Statistics:
        return self._inner.statistics()

    @property
    def rules(self) -> LimiterRules:
        return self._inner.rules

    def close(self) -> None:
        awaited(self._inner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Api(Protocol):
    """Makes limiters of one API, with the face of the threaded one."""

    def __call__(self, store: Any, quota: Any, **options: Any) -> "RateLimiter | Blocking": ...

    def from_url(self, url: Any, quota: Any, **options: Any) -> "RateLimiter | Blocking": ...
