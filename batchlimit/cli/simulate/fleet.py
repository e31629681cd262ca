"""Limiter instances in virtual time on one store in memory: real reservoirs and batches, without threads or sockets."""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from operator import getitem
from typing import Any

from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, SpendReply
from batchlimit.quota.lookup import quota_rule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.stores.memory import MemoryStore
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.limiter import RateLimiter
from batchlimit.sync.refresher import Refresher
from batchlimit.sync.registry import Registry
from batchlimit.testing.insides import PlainStore

_MOST_KEYS = 1_000_000


class Fleet:
    """Limiter instances, and the time in which they live. Leases are as long as for such a round trip (s)."""

    def __init__(
        self,
        quotas: Mapping[str, Quota],
        instances: int,
        round_trip: float,
        seed: int,
        called: Callable[[str], None] = lambda _key: None,
    ) -> None:
        self.random = random.Random(seed)
        self._now = [0.0]
        clock: Any = partial(getitem, self._now, 0)  # a function of Python's own would take twice as long
        self.clock: Callable[[], float] = clock
        self.store = _Counting(self.clock, called, round_trip)
        self.order = itertools.count()
        self.plans: list[tuple[float, int, _Attendant, KeyEntry]] = []
        rule, options = quota_rule(quotas), Options(max_keys=_MOST_KEYS)
        self.limiters = [RateLimiter.__new__(RateLimiter) for _ in range(instances)]
        for each in self.limiters:
            each._use(_SimulatedRegistry(self, rule, options))

    def move(self, instant: float) -> None:
        """Let time pass until an instant, and do what is due in the background meanwhile."""
        while self.plans and self.plans[0][0] <= instant:
            at, _, attendant, entry = heapq.heappop(self.plans)
            if entry.due == at:
                self._now[0] = max(self._now[0], at)
                asks: list[Any] = []
                attendant._tend(entry, asks)
                attendant._ask(asks)
        self._now[0] = instant


class _SimulatedRegistry(Registry):
    """A Registry whose background thread is the fleet's loop."""

    def __init__(self, fleet: Fleet, rule: Callable[[str], Quota], options: Options) -> None:
        self._fleet = fleet
        self._refreshes: Any = partial(_Attendant, fleet)
        super().__init__(fleet.store, rule, options, fleet.clock)

    def _begin(self) -> None:
        self.store: GuardedStore = PlainStore(self._opened, self._options.deadline)
        super()._begin()

    def _make(self, key: str, reservoir: Reservoir) -> KeyEntry:
        return _SimulatedEntry(self._fleet.random, key, reservoir, self.store, self.clock, self._watch, self.finish)


class _SimulatedEntry(KeyEntry):
    """A KeyEntry whose jitter comes from the fleet's seed: whatever else the process draws changes nothing."""

    __slots__ = ("uniform",)

    def __init__(self, chance: random.Random, *rest: Any) -> None:
        super().__init__(*rest)
        self.uniform = chance.uniform


class _Attendant(Refresher):
    """Looks after key entries when the fleet says so."""

    def __init__(self, fleet: Fleet, *rest: Any) -> None:
        super().__init__(*rest)
        self._fleet = fleet

    def watch(self, entry: KeyEntry) -> None:
        if entry.due < math.inf:
            heapq.heappush(self._fleet.plans, (entry.due, next(self._fleet.order), self, entry))

    def come_by(self, at: float) -> None:
        """Do nothing: what is idle may stay in memory."""


class _Counting(MemoryStore):
    """A MemoryStore that counts its calls, tells `called` of each key, and has instances lease as for a round trip."""

    def __init__(self, clock: Callable[[], float], called: Callable[[str], None], round_trip: float) -> None:
        super().__init__(clock)
        self.calls, self._called, self._round_trip = 0, called, round_trip

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        self._count(key)
        return super().take(key, quota, ask._replace(round_trip=self._round_trip))

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        for group in groups:
            for each in group:
                self._count(each.key)
        return super().spend(groups, look=look, within=within)

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        self._count(key)
        return super().give_back(key, quota, back)

    def begin(self, key: str, quota: Quota, levels: list[float]) -> None:
        """Have a bucket with so many tokens in each bandwidth, and nothing leased."""
        now = self._now()
        bucket = Bucket(quota, now)
        bucket._levels = list(levels)
        self._buckets[key] = bucket, now + bucket.expires_in()

    def _count(self, key: str) -> None:
        self.calls += 1
        self._called(key)
