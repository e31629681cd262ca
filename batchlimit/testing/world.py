"""The world of limiters in virtual time: exactly one token bucket a key, whatever they lease of it."""

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from batchlimit.base.key import place_of
from batchlimit.batching import FixedBatch
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.fair_share import Claims
from batchlimit.bucket.messages import Ask
from batchlimit.bucket.spendable import InstanceEntry, InstanceTable
from batchlimit.quota.lookup import policies_of
from batchlimit.quota.overrides.overrides import Change
from batchlimit.quota.quota import Quota
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from batchlimit.stores.memory_parts import MemoryRules
from batchlimit.stores.outage import too_late
from batchlimit.sync.registry import Registry
from batchlimit.testing.faults import AsyncFaultStore, FaultStore, Faulty, FaultyCalls
from batchlimit.testing.insides import AsyncVirtualRegistry, VirtualRegistry
from batchlimit.testing.scene import World, frozen
from batchlimit.testing.virtual_time import VirtualTime

Held = Callable[[str, str], int]
"""Returns how many tokens of a stored key an instance, by its name, has leased and not spent."""


class _Undivided(InstanceTable):
    """Has each instance claim the whole bucket, as if it were alone."""

    __slots__ = ()

    def claims(self, instance: InstanceEntry) -> Claims:
        return Claims(1, 1, instance.last, instance.last)


class PlainBucket(Bucket):
    """A token bucket that whoever comes first takes from: nothing is set aside for another instance."""

    __slots__ = ()

    def __init__(self, quota: Quota, now: int, fill: float = 1.0) -> None:
        super().__init__(quota, now, fill)
        self._table = _Undivided()

    def _reserve(self, ask: Ask, wait: int) -> None:
        pass


class HeardRules(MemoryRules):
    """Overrides heard of at once; its clock shows whole milliseconds, as the end of an override of an hour does."""

    heard: Callable[[], None]

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._began = round(self._began)

    def change(self, change: Change) -> tuple[bool, int]:
        done = super().change(change)
        self.heard()
        return done

    def _now(self) -> float:
        return math.floor(super()._now() * 1000) / 1000


class VirtualStore(MemoryStore):
    """A MemoryStore whose time is moved; before, it learns what was spent: a full bucket that lends is to refill."""

    _bucket = PlainBucket

    def __init__(self, time: VirtualTime) -> None:
        super().__init__(time)
        self.rules: HeardRules = HeardRules(time)

    def leave(self, instant: float, held: Held) -> None:
        """Before the clock is set to this instant: what is spent is spent now; what would expire unspent comes home."""
        now, then = self._now(), int(instant * 1e6)
        with self._lock:
            for key, (bucket, _) in self._buckets.items():
                if not (table := bucket._table).outstanding:
                    continue
                bucket._refill_to(now, "", 0)
                for name, instance in table.instances.items():
                    unspent = min(instance.held, held(name, key))
                    lapses = instance.expires <= then - bucket._epoch
                    table.settle(instance, 0 if lapses else unspent)
                    if lapses:
                        bucket._credit(unspent)

    def fill(self, key: str, quota: Quota, part: float) -> None:
        """Have so great a part of the burst in a bucket, 0 to 1."""
        with self._lock:
            now = self._now()
            bucket = self._live(key, now) or self._bucket(quota, now)
            bucket._refill_to(now, "", 0)
            room = bucket._table.outstanding if part else 0
            bucket._levels = [max(0.0, band.burst * part - room) for band in bucket._bands]
            self._buckets[key] = bucket, now + bucket.expires_in()

    def forget(self) -> None:
        with self._lock:
            self._buckets.clear()

    def refill(self) -> None:
        for key, (bucket, _) in list(self._buckets.items()):
            self.fill(key, bucket._quota, 1.0)


class FaultyVirtualStore(FaultyCalls, MemoryStore):
    """Buckets in virtual time behind the faults of a FaultStore: a slow call moves the clock, up to its deadline."""

    def __init__(self, buckets: VirtualStore, faults: Faulty[Any], time: VirtualTime, deadline: float) -> None:
        super().__init__(time)
        self._inner, self._faults, self._time, self._deadline = buckets, faults, time, deadline
        self.rules = buckets.rules

    def _do(self, call: Callable[[Any], Any]) -> Any:
        if seconds := min(self._faults.slow, self._deadline):
            self._time.move(self._time() + seconds)
        with self._faults._around(self._inner.forget):
            result = call(self._inner)
        if self._faults.slow > self._deadline:
            raise too_late(self.address, self._deadline)
        return result


FAULTY = (FaultStore, AsyncFaultStore)
Inside = VirtualRegistry | AsyncVirtualRegistry


_EXACT = FixedBatch(0)
"""Leases what callers wait for, and no more."""


def changed_rule(rule: Callable[[str], Quota], change: Callable[[Quota], Quota]) -> Callable[[str], Quota]:
    """Return the quotas of another rule, changed, with its policies."""

    def quota(key: str) -> Quota:
        return change(rule(key))

    quota.policies = policies_of(rule)  # type: ignore[attr-defined]
    return quota


class VirtualWorld(World):
    """What limiters of one virtual time are made of: it finds their stores, and tells them when time passes."""

    def __init__(
        self,
        make_store: Callable[[VirtualTime], VirtualStore] = VirtualStore,
        concerns: Callable[[Any], bool] = lambda _registry: True,
        change_quota: Callable[[Quota], Quota] = lambda quota: quota,
    ) -> None:
        """Begin empty; `concerns` says of the original registry of a limiter whether it lives here."""
        super().__init__()
        self.time = VirtualTime()
        self.change_gate = partial(frozen, self.time)
        self.time.world = self
        self._make_store, self._concerns, self._change_quota = make_store, concerns, change_quota
        self.stores: dict[object, VirtualStore] = {}

    def make(self, original: Any) -> Inside | None:
        """Return a registry in virtual time that has the quotas of the original, changed, and its options."""
        if not self._concerns(original):
            return None
        opened, buckets = original._opened, self.store_of(original._opened)
        store: Any = buckets
        if isinstance(opened, FAULTY):
            store = FaultyVirtualStore(buckets, opened, self.time, original._options.deadline)
        is_threaded = isinstance(original, Registry)
        kind: Any = VirtualRegistry if is_threaded else AsyncVirtualRegistry
        rule, options = changed_rule(original.rule, self._change_quota), replace(original._options, sizer=_EXACT)
        with warnings.catch_warnings():  # the original has warned
            warnings.simplefilter("ignore")
            made = kind(store if is_threaded else AsyncMemoryStore(store), rule, options, self.time)
        made.original, made.buckets, made.own_store = original, buckets, original.own_store
        made.arrive()  # it learns of the overrides that are set
        return made  # type: ignore[no-any-return]

    def buckets(self, key: str) -> list[tuple[VirtualStore, Quota]]:
        """Return the stores that have a bucket of this key, or would make one, each with the key's quota there."""
        found = []
        for each in self.insides:
            with suppress(ValueError):  # it has no quota for the key
                found.append((each.buckets, each.rule(key)))
        return found

    def leave(self, instant: float) -> None:
        by_name = {each._keyspace._instance.name: each for each in self.insides}

        def held(name: str, key: str) -> int:
            entry = by_name[name].entries.get(place_of(key)) if name in by_name else None
            return 0 if entry is None else entry.reservoir.state.lease.leased + entry.reservoir.state.lease.pledged

        for store in list(self.stores.values()):
            store.leave(instant, held)

    def arrive(self) -> None:
        with self.time.changed:
            for inside in self.insides:
                inside.arrive()

    def end(self) -> None:
        for inside in self.insides:
            inside.rest()

    def store_of(self, original: Any) -> VirtualStore:
        """Return the store in place of this one: one for all who would share its buckets there."""
        inner = original._store if isinstance(original, AsyncMemoryStore) else original
        name = (inner.address, inner._prefix) if hasattr(inner, "_prefix") else inner
        if (found := self.stores.get(name)) is None:
            found = self.stores[name] = self._make_store(self.time)
            found.rules.heard = self.arrive
        return found
