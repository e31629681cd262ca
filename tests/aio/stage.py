"""What the tests of the asyncio API share: a store that does as told, and limiters on it in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from batchlimit import AsyncRateLimiter, Quota, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.stores import AsyncStore, MemoryStore
from batchlimit.stores.memory import AsyncMemoryStore
from tests.aio.loop import virtual_loop

KEY = "tenant:42"
SLOW = 0.001
TEN = Quota(SLOW, 10)


async def nothing() -> None:
    """What a stage does unless told."""


async def away() -> None:
    """What a store does that is away."""
    raise StoreUnavailable("away")


class Gate:
    """Holds up whoever passes until it is opened."""

    def __init__(self) -> None:
        self._reached, self._open = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self._reached.set()
        await self._open.wait()

    async def await_someone(self) -> None:
        await self._reached.wait()

    def open(self) -> None:
        self._open.set()


class Stage:
    """A store that notes what it is asked and, around it, does what the test says.

    `before` runs on the way to the store: what it raises, the store has never heard of. `after` runs on the way back:
    what it raises loses the answer to an ask that was carried out. `busiest` is how many asks were under way at once.
    """

    address = "stage://"
    is_prompt = True

    def __init__(self, inner: AsyncStore | None = None) -> None:
        self.inner = AsyncMemoryStore(MemoryStore(virtual_loop().time)) if inner is None else inner
        self.asks: list[Ask] = []
        self.grants: list[Grant] = []
        self.backs: list[GiveBack] = []
        self.before: Callable[[], Awaitable[None]] = nothing
        self.after: Callable[[], Awaitable[None]] = nothing
        self.before_back: Callable[[], Awaitable[None]] = nothing
        self.before_probe: Callable[[], Awaitable[None]] = nothing
        self.probes = 0
        self.busiest = self._busy = 0
        self.renewed = self.disconnected = self.closed = 0

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        self.asks.append(ask)
        self._busy += 1
        self.busiest = max(self.busiest, self._busy)
        try:
            await self.before()
            grant = await self.inner.take(key, quota, ask)
            self.grants.append(grant)
            await self.after()
            return grant
        finally:
            self._busy -= 1

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        self.backs.append(back)
        await self.before_back()
        return await self.inner.give_back(key, quota, back)

    async def peek(self, key: str, quota: Quota) -> Level:
        return await self.inner.peek(key, quota)

    def part(self, key: str) -> str:
        return ""

    async def probe(self, key: str) -> None:
        self.probes += 1
        await self.before_probe()

    def after_fork(self) -> None:
        self.inner.after_fork()

    def renew(self) -> None:
        self.renewed += 1
        self.inner.renew()

    async def disconnect(self) -> None:
        self.disconnected += 1
        await self.inner.disconnect()

    async def aclose(self) -> None:
        self.closed += 1
        await self.inner.aclose()


def limiter_on(stage: Stage, quota: Quota | str = TEN, **options: Any) -> AsyncRateLimiter:
    """A limiter in the loop's time, that leases no more than its callers ask for; it is closed with the test."""
    limiter = AsyncRateLimiter(stage, quota, clock=virtual_loop().time, **({"sizer": FixedBatch(1)} | options))
    virtual_loop().limiters.append(limiter)
    return limiter


async def in_line(limiter: AsyncRateLimiter, n: int) -> None:
    """Return once so many callers wait."""
    while limiter.statistics().waiting != n:  # noqa: ASYNC110  the limiter has no event for it
        await asyncio.sleep(0)


async def stand_in_line(
    limiter: AsyncRateLimiter, cost: int = 1, *, timeout: float | None = None
) -> "asyncio.Task[None]":
    """Begin to acquire in another task; return once it is in line."""
    ahead = limiter.statistics().waiting
    task = asyncio.create_task(limiter.acquire(KEY, cost, timeout=timeout))
    await in_line(limiter, ahead + 1)
    return task


def read(answer: "asyncio.Future[Any]") -> Any:
    """Return what came to a call that was sent, or raise it."""
    if isinstance(told := answer.result(), Exception):
        raise told
    return told
