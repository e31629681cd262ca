"""Buckets in the memory of this process: the same rules without a server, for one process and for tests."""

import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from batchlimit.base.blocking import OwnLock, not_reentered
from batchlimit.base.unique import Unique
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, Level, Spend, SpendReply, Spent
from batchlimit.quota.quota import Quota
from batchlimit.stores.memory_parts import Expiring, MemoryRules, MemorySlots

P = ParamSpec("P")
T = TypeVar("T")
_SECOND = 1_000_000


class MemoryStore(Unique):
    """A Store whose buckets are in a dict. Another process has other buckets.

    Args:
        clock: returns the time (seconds, default time.monotonic).

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.stores import MemoryStore
        >>> limiter = RateLimiter(MemoryStore(), "2/hour")
        >>> [limiter.try_acquire("ann") for _ in range(3)]
        [True, True, False]
    """

    address = "memory://"
    is_prompt = True
    spends_together = True
    _bucket = Bucket
    _instead = "its buckets belong to this process; to share buckets use a server"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets = Expiring[Bucket]()
        self._lines = Expiring[int]()
        self.rules = MemoryRules(clock)
        self.slots = MemorySlots(clock)
        self._lock = OwnLock()  # held for each operation, which makes it atomic

    def __repr__(self) -> str:
        return f"<MemoryStore of {len(self._buckets)} buckets>"

    def part(self, key: str) -> str:
        """See Remote.part."""
        return ""

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        with not_reentered(self._lock):
            now = self._now()
            self._buckets.forget(now)
            bucket = self._live(key, now) or self._bucket(quota, now, ask.fill if ask.epoch else 1.0)
            grant = bucket.take(quota, ask, now)
            self._buckets[key] = bucket, now + bucket.expires_in()
        revision = self.rules.revision
        return grant._replace(rules=revision) if revision else grant

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        """See Spender.spend."""
        with not_reentered(self._lock):
            now = self._now()
            self._buckets.forget(now, sum(map(len, groups)))
            found = [self._spent(group, now) for group in groups]
        return SpendReply(self.rules.revision if look else -1, found)

    def _spent(self, group: Sequence[Spend], now: int) -> tuple[Spent, ...] | None:
        buckets = [self._live(each.key, now) or self._bucket(each.quota, now, each.fill) for each in group]
        offers = [bucket.offer(each, now) for bucket, each in zip(buckets, group, strict=True)]
        told = tuple([each for each in offers if each is not None])
        if len(told) < len(offers):
            return None
        if not all(each.is_charged for each in told):
            return told
        charged = tuple([bucket.charge(each, now) for bucket, each in zip(buckets, group, strict=True)])
        for bucket, each in zip(buckets, group, strict=True):
            self._buckets[each.key] = bucket, now + bucket.expires_in()
        return charged

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        return self._change(key, None, lambda bucket, now: bucket.give_back(back, now)) or 0

    def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        with not_reentered(self._lock):
            now = self._now()
            return (self._live(key, now) or self._bucket(quota, now)).peek(now)

    def reset(self, key: str, *, forget: bool) -> tuple[float, ...] | None:
        """See Resettable.reset."""
        return self._change(key, None, lambda bucket, now: bucket.reset(now, forget=forget))

    @property
    def pauses(self) -> "MemoryPauses":
        """See Pausable."""
        return MemoryPauses(self)

    def _change(self, key: str, quota: Quota | None, change: Callable[[Bucket, int], T]) -> T | None:
        """Change a bucket, and return what that tells. One that is not there begins by the quota; None: without one."""
        with not_reentered(self._lock):
            now = self._now()
            bucket = self._live(key, now) or (self._bucket(quota, now) if quota else None)
            if bucket is None:
                return None
            changed = change(bucket, now)
            self._buckets[key] = bucket, now + bucket.expires_in()
        return changed

    def probe(self, key: str) -> None:
        """Do nothing: memory is always reachable."""

    def after_fork(self) -> None:
        """Replace the locks: a thread of the parent may hold an old one, which would stay locked for ever."""
        self._lock = OwnLock()
        self.rules.after_fork()
        self.slots.after_fork()

    def close(self) -> None:
        """Do nothing: nothing is open, and the buckets end with the store."""

    def _now(self) -> int:
        return int(self._clock() * _SECOND)

    def _live(self, key: str, now: int) -> Bucket | None:
        bucket, expires = self._buckets.get(key, (None, 0))
        return bucket if now < expires else None


class MemoryPauses:
    """The pauses of a MemoryStore; see lua/pause.lua."""

    __slots__ = ("_store",)

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def pause(self, key: str, quota: Quota, seconds: float, why: str) -> float:
        lasting = math.ceil(seconds * _SECOND)
        return (self._store._change(key, quota, lambda bucket, now: bucket.pause(lasting, now)) or 0) / _SECOND

    def resume(self, key: str) -> bool:
        return bool(self._store._change(key, None, lambda bucket, now: bucket.resume(now)))

    def line_up(self, key: str, wait: float, spacing: float, longest: float) -> float:
        waits, apart, most = [math.ceil(seconds * _SECOND) for seconds in (wait, spacing, longest)]
        store, lines = self._store, self._store._lines
        with not_reentered(store._lock):
            now = store._now()
            lines.forget(now)
            turn = max(lines.get(key, (0, 0))[0], now + waits)
            if turn - now <= most:
                lines[key] = turn + apart, turn + apart
        return (turn - now) / _SECOND


class _Awaited:
    """A part of a store whose methods are awaited, and never wait."""

    __slots__ = ("_part",)

    def __init__(self, part: object) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)

        async def awaited(*arguments: Any) -> Any:
            return method(*arguments)

        return awaited


def _awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a method to be awaited, which calls this one and never waits."""

    async def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        told: T = getattr(self._store, method.__name__)(*args, **options)
        return told

    return call


class AsyncMemoryStore(Unique):
    """An AsyncStore on a MemoryStore, which threads may use at the same time."""

    __slots__ = ("_store",)
    address = MemoryStore.address
    is_prompt = spends_together = True
    _instead = MemoryStore._instead

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<AsyncMemoryStore on {self._store!r}>"

    def part(self, key: str) -> str:
        return self._store.part(key)

    @property
    def rules(self) -> Any:
        return _Awaited(self._store.rules)

    @property
    def pauses(self) -> Any:
        return _Awaited(self._store.pauses)

    take = _awaited(MemoryStore.take)
    spend = _awaited(MemoryStore.spend)
    give_back = _awaited(MemoryStore.give_back)
    peek = _awaited(MemoryStore.peek)
    probe = _awaited(MemoryStore.probe)

    def after_fork(self) -> None:
        """Replace the lock: a thread of the parent may hold the old one, which would stay locked for ever."""
        self._store.after_fork()

    def renew(self) -> None:
        """Do nothing: nothing is bound to an event loop."""

    async def disconnect(self) -> None:
        """Do nothing: nothing is open."""

    async def aclose(self) -> None:
        """Do nothing: nothing is open, and the buckets end with the store."""
