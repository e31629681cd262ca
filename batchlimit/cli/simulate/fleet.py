"""Limiter instances in virtual time on one store in memory: real reservoirs and batches, without threads or sockets."""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from operator import getitem
from typing import Any

from batchlimit.base.key import stored
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, SpendReply
from batchlimit.quota.lookup import quota_rule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.stores.memory import MemoryStore
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.limiter import RateLimiter
from batchlimit.sync.refresher import Refresher
from batchlimit.sync.registry import Registry
from batchlimit.testing.insides import PlainStore

_MOST_KEYS = 1_000_000


class Fleet:
    """Limiter instances, and the time in which they live. Leases are as long as for such a round trip (s)."""

    def __init__(self, quotas: Mapping[str, Quota], instances: int, round_trip: float, seed: int) -> None:
        self._now, self._plans = [0.0], list[tuple[float, int, _Attendant, KeyEntry]]()
        clock: Any = partial(getitem, self._now, 0)  # a function of Python's own would take twice as long
        self.store, order, chance = _Counting(clock, round_trip), itertools.count(), random.Random(seed)

        class SeededEntry(KeyEntry):
            """Its jitter comes from the seed: whatever else the process draws changes nothing."""

            __slots__ = ()
            uniform = staticmethod(chance.uniform)

        rule, options = quota_rule(quotas), Options(max_keys=_MOST_KEYS)
        refreshes: Any = partial(_Attendant, self._plans, order)
        self.limiters = [RateLimiter.__new__(RateLimiter) for _ in range(instances)]
        for each in self.limiters:
            each._use(_SimulatedRegistry(refreshes, SeededEntry, self.store, rule, options, clock))

    def move(self, instant: float) -> None:
        """Let time pass until an instant, and do what is due in the background meanwhile."""
        while self._plans and self._plans[0][0] <= instant:
            at, _, attendant, entry = heapq.heappop(self._plans)
            if entry.due == at:
                self._now[0] = max(self._now[0], at)
                asks: list[Any] = []
                attendant._tend(entry, asks)
                attendant._ask(asks)
        self._now[0] = instant


class _SimulatedRegistry(Registry):
    """A Registry whose background thread is the fleet's loop."""

    def __init__(self, refreshes: type[Refresher], entry: type[KeyEntry], *rest: Any) -> None:
        self._refreshes, self._entry = refreshes, entry
        super().__init__(*rest)

    def _begin(self) -> None:
        self.store = PlainStore(self._opened, self._options.deadline)
        super()._begin()

    def _make(self, key: str, reservoir: Reservoir) -> KeyEntry:
        return self._entry(key, reservoir, self.store, self.clock, self._watch, self.finish)


class _Attendant(Refresher):
    """Looks after key entries when the fleet says so; what is idle may stay in memory."""

    def __init__(self, plans: list[Any], order: "itertools.count[int]", *rest: Any) -> None:
        super().__init__(*rest)
        self._due, self._order = plans, order

    def watch(self, entry: KeyEntry) -> None:
        if entry.due < math.inf:
            heapq.heappush(self._due, (entry.due, next(self._order), self, entry))

    def come_by(self, at: float) -> None:
        """Do nothing."""


class _Counting(MemoryStore):
    """A MemoryStore that counts its calls, and has instances lease as for a round trip."""

    def __init__(self, clock: Callable[[], float], round_trip: float) -> None:
        super().__init__(clock)
        self.calls, self._round_trip = 0, round_trip

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        self.calls += 1
        return super().take(key, quota, ask._replace(round_trip=self._round_trip))

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        self.calls += sum(map(len, groups))
        return super().spend(groups, look=look, within=within)

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        self.calls += 1
        return super().give_back(key, quota, back)

    def begin(self, key: str, quota: Quota, levels: list[float]) -> None:
        """Have a bucket with so many tokens in each bandwidth, and nothing leased."""
        now = self._now()
        bucket = Bucket(quota, now)
        bucket._levels = list(levels)
        self._buckets[stored(key)] = bucket, now + bucket.expires_in()
