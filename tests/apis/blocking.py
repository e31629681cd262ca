"""The asyncio API behind the face of the threaded one, so that one test can be held against both."""

import asyncio
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Protocol, Self

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.base.decision import Remains
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.quota.quota import Quota
from batchlimit.stores import RedisStore
from tests.awaiting import awaited
from tests.sync.stage import Stage


class Awaited:
    """A store of the threaded tests for tasks. What blocks in it stops the loop, unless the stage `has_gates`."""

    is_prompt = True

    def __init__(self, stage: Stage | RedisStore) -> None:
        self._stage = stage
        self.address = stage.address

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        if getattr(self._stage, "has_gates", False):
            return await asyncio.to_thread(self._stage.take, key, quota, ask)
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


class _Block:
    """A context manager of the asyncio API, for a thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __enter__(self) -> Self:
        awaited(self._inner.__aenter__)
        return self

    def __exit__(self, *error: object) -> None:
        awaited(self._inner.__aexit__, *error)


class BlockingReservation(_Block):
    """An AsyncReservation for a thread, or an AsyncJointReservation."""

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


class BlockingLimit(_Block):
    """A limit of the asyncio API for functions: they are coroutine functions to it, and are awaited."""

    def __call__(self, function: Callable[..., Any]) -> Any:
        @wraps(function)
        async def called(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        limited = self._inner(called)

        @wraps(limited)
        def blocking(*args: Any, **kwargs: Any) -> Any:
            return awaited(limited, *args, **kwargs)

        return blocking


class Blocking:
    """An AsyncRateLimiter for threads."""

    def __init__(self, store: Any, quota: Any, **options: Any) -> None:
        self._use(
            AsyncRateLimiter(Awaited(store) if isinstance(store, Stage | RedisStore) else store, quota, **options)
        )

    def _use(self, inner: AsyncRateLimiter) -> None:
        self._inner = inner

    @classmethod
    def from_url(cls, url: str, quota: Any, **options: Any) -> Self:
        found = cls.__new__(cls)
        found._use(AsyncRateLimiter.from_url(url, quota, **options))
        return found

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(awaited, found) if name in _AWAITED else found

    def reserve(self, *args: Any, **options: Any) -> BlockingReservation:
        return BlockingReservation(awaited(self._inner.reserve, *args, **options))

    def limit(self, *args: Any, **options: Any) -> BlockingLimit:
        return BlockingLimit(self._inner.limit(*args, **options))

    def take_leased(self, costs: dict[str, int]) -> dict[str, Remains] | None:
        async def take() -> dict[str, Remains] | None:
            return self._inner.take_leased(costs)

        found: dict[str, Remains] | None = awaited(take)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_AWAITED = {
    *("try_acquire", "acquire", "decide", "peek", "refund", "pause", "resume", "line_up", "acquire_all", "decide_all"),
    "close",
}


class Api(Protocol):
    """Makes limiters of one API, with the face of the threaded one."""

    def __call__(self, store: Any, quota: Any, **options: Any) -> "RateLimiter | Blocking": ...

    def from_url(self, url: Any, quota: Any, **options: Any) -> "RateLimiter | Blocking": ...
