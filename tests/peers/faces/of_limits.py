"""The strategies of `limits`, for threads and for tasks, each asked of a limiter of ours: a plugin of pytest.

A strategy keeps its storage, which tests make and name. The first ask makes a limiter for it: in memory, or on the
Redis of the storage. Every strategy is a bucket: that is what there is to find out.
"""

import time
from dataclasses import dataclass, field
from os import environ
from typing import Any
from weakref import WeakKeyDictionary

import limits.aio.strategies
import limits.strategies
import limits.util
import pytest
import redis.asyncio
from limits import RateLimitItem
from limits.limits import GRANULARITIES
from limits.util import WindowStats

from batchlimit import AsyncRateLimiter, Decision, Quota, RateLimiter
from batchlimit.admin import Admin
from batchlimit.batching import FixedBatch
from batchlimit.stores import AsyncRedisStore, MemoryStore, RedisStore
from batchlimit.stores.memory import AsyncMemoryStore

DEADLINE = 10.0
"""Seconds that Redis has: a slow machine is no failure of what is tested."""


BEGIN = time.time()


def now() -> float:
    """Return the seconds of a clock that a test moves: it replaces `time.time`, which is looked up at each call.

    A test moves it by whole seconds and expects a whole token then, so what floats lose is rounded away.
    """
    return round(time.time() - BEGIN, 6) + 1e-7


@dataclass(eq=False)
class Ours:
    """What stands for a storage: a limiter whose keys tell their quotas, and an Admin of the same buckets."""

    limiter: Any
    store: Any
    quotas: dict[str, Quota] = field(default_factory=dict)

    def key(self, item: RateLimitItem, identifiers: tuple[str, ...]) -> str:
        key = item.key_for(*identifiers)
        self.quotas[key] = Quota(item.amount / item.get_expiry(), item.amount)
        return key


MADE: WeakKeyDictionary[Any, Ours] = WeakKeyDictionary()


def ours(storage: Any, *, tasks: bool) -> Ours:
    """Return what stands for a storage, and make it where it is new."""
    if storage not in MADE:
        quotas: dict[str, Quota] = {}
        options: dict[str, Any] = {"clock": now, "deadline": DEADLINE}
        if "Memory" in type(storage).__name__:
            # A clock that jumps leaves behind what was leased before, and no process lives through that.
            options["sizer"] = FixedBatch(1)
            store: Any = MemoryStore(now)
            opened: Any = AsyncMemoryStore(store) if tasks else store
        else:
            prefix = getattr(storage, "key_prefix", "batchlimit")
            store = RedisStore(redis.Redis.from_url(environ["PEERS_REDIS"]), prefix=prefix)
            task_client = redis.asyncio.Redis.from_url(environ["PEERS_REDIS"])
            opened = AsyncRedisStore(task_client, prefix=prefix) if tasks else store
        kind: Any = AsyncRateLimiter if tasks else RateLimiter
        MADE[storage] = Ours(kind(opened, quotas.__getitem__, **options), store, quotas)
        storage.reset = lambda: MADE.pop(storage)
    return MADE[storage]


def stats(decision: Decision) -> WindowStats:
    return WindowStats(time.time() + decision.reset_after, decision.remaining)


class ForThreads:
    """A strategy whose calls are ours."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    @property
    def _ours(self) -> Ours:
        return ours(self.storage, tasks=False)

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        return cost <= item.amount and bool(self._ours.limiter.decide(self._ours.key(item, identifiers), cost))

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        return bool(self._ours.limiter.peek(self._ours.key(item, identifiers)).remaining >= cost)

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        return stats(self._ours.limiter.peek(self._ours.key(item, identifiers)))

    def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        Admin(self._ours.store).buckets.clear(self._ours.key(item, identifiers))


class ForTasks(ForThreads):
    """The same, awaited."""

    @property
    def _ours(self) -> Ours:
        return ours(self.storage, tasks=True)

    async def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:  # type: ignore[override]
        return cost <= item.amount and bool(await self._ours.limiter.decide(self._ours.key(item, identifiers), cost))

    async def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:  # type: ignore[override]
        decision = await self._ours.limiter.peek(self._ours.key(item, identifiers))
        return bool(decision.remaining >= cost)

    async def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:  # type: ignore[override]
        return stats(await self._ours.limiter.peek(self._ours.key(item, identifiers)))

    async def clear(self, item: RateLimitItem, *identifiers: str) -> None:  # type: ignore[override]
        Admin(self._ours.store).buckets.clear(self._ours.key(item, identifiers))


def parse_many(text: str) -> list[RateLimitItem]:
    """Return what a text says that is read as ours are."""
    try:
        return [_item(each.burst, each.burst / each.rate) for each in Quota.parse(text).bandwidths]
    except TypeError as error:
        raise ValueError(*error.args) from None


def parse(text: str) -> RateLimitItem:
    return parse_many(text)[0]


def _item(amount: int, seconds: float) -> RateLimitItem:
    units = sorted(GRANULARITIES.values(), key=lambda kind: -kind.GRANULARITY.seconds)
    kind = next(kind for kind in units if round(seconds) % kind.GRANULARITY.seconds == 0)
    return kind(amount, round(seconds) // kind.GRANULARITY.seconds)


for module in (limits, limits.util):
    module.parse, module.parse_many = parse, parse_many  # type: ignore[attr-defined]

NAMES = {
    "fixed-window": "FixedWindowRateLimiter",
    "moving-window": "MovingWindowRateLimiter",
    "sliding-window-counter": "SlidingWindowCounterRateLimiter",
}
for module, base in ((limits.strategies, ForThreads), (limits.aio.strategies, ForTasks)):
    for strategy, name in NAMES.items():
        made = type(name, (base,), {"__doc__": base.__doc__})
        setattr(module, name, made)
        module.STRATEGIES[strategy] = made


class Servers:
    """What starts servers by Docker for them: ours runs already, and others are not there."""

    def start(self, name: str) -> None:
        if name not in ("redis", "redis-basic"):
            pytest.skip(f"no {name} here")

    def wait_for_service(self, *_: object) -> None: ...


@pytest.fixture(scope="session")
def docker_services() -> Servers:
    return Servers()
