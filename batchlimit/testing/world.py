"""Limiters in virtual time, each with another inside, on stores in memory."""

import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from batchlimit.batching import FixedBatch
from batchlimit.quota.key import place_of
from batchlimit.quota.lookup import policies_of
from batchlimit.quota.quota import Quota
from batchlimit.stores.memory import AsyncMemoryStore
from batchlimit.sync.registry import Registry
from batchlimit.testing import tasks, threads
from batchlimit.testing.faults import AsyncFaultStore, FaultStore
from batchlimit.testing.scene import World
from batchlimit.testing.virtual_store import FaultyVirtualStore, VirtualStore
from batchlimit.testing.virtual_time import VirtualTime

FAULTY = (FaultStore, AsyncFaultStore)
Inside = threads.VirtualRegistry | tasks.AsyncVirtualRegistry


_EXACT = FixedBatch(0)
"""Leases what callers wait for, and no more."""


class ChangedRule:
    """The quotas of another rule, changed, and its policies."""

    def __init__(self, rule: Callable[[str], Quota], change: Callable[[Quota], Quota]) -> None:
        self._rule, self._change = rule, change
        self.policies = policies_of(rule)

    def __call__(self, key: str) -> Quota:
        """Return the quota of a key."""
        return self._change(self._rule(key))


class VirtualWorld(World):
    """What limiters of one virtual time are made of: it finds their stores, and tells them when time passes."""

    def __init__(
        self,
        make_store: Callable[[VirtualTime], VirtualStore] = VirtualStore,
        concerns: Callable[[Any], bool] = lambda _registry: True,
        change_quota: Callable[[Quota], Quota] = lambda quota: quota,
    ) -> None:
        """Begin empty; `concerns` says of the original registry of a limiter whether it lives here."""
        self.time = self.gate_time = VirtualTime()
        self.time.world = self
        self._make_store, self._concerns, self._change_quota = make_store, concerns, change_quota
        self._stores: dict[object, VirtualStore] = {}
        self._insides: weakref.WeakKeyDictionary[Any, Inside] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()  # held to make an inside

    @property
    def stores(self) -> list[VirtualStore]:
        """All stores."""
        return list(self._stores.values())

    def inside(self, limiter: Any, original: Any) -> Inside | None:
        if not self._concerns(original):
            return None
        with self._lock:
            if (found := self._insides.get(limiter)) is None:
                found = self._insides[limiter] = self._made(original)
                found.arrive()  # it learns of the overrides that are set
            return found

    def _made(self, original: Any) -> Inside:
        """Return a registry in virtual time that has the quotas of the original, changed, and its options."""
        opened, buckets = original._opened, self.store_of(original._opened)
        store: Any = buckets
        if isinstance(opened, FAULTY):
            store = FaultyVirtualStore(buckets, opened, self.time, original._options.deadline)
        is_threaded = isinstance(original, Registry)
        kind: Any = threads.VirtualRegistry if is_threaded else tasks.AsyncVirtualRegistry
        rule, options = ChangedRule(original.rule, self._change_quota), replace(original._options, sizer=_EXACT)
        with warnings.catch_warnings():  # the original has warned
            warnings.simplefilter("ignore")
            made = kind(store if is_threaded else AsyncMemoryStore(store), rule, options, self.time)
        made.original, made.buckets, made.own_store = original, buckets, original.own_store
        return made  # type: ignore[no-any-return]

    def buckets(self, key: str) -> list[tuple[VirtualStore, Quota]]:
        """Return the stores that have a bucket of this key, or would make one, each with the key's quota there."""
        found = []
        for each in list(self._insides.values()):
            with suppress(ValueError):  # it has no quota for the key
                found.append((each.buckets, each.rule(key)))
        return found

    def leave(self, instant: float) -> None:
        by_name = {each._keyspace._instance.name: each for each in list(self._insides.values())}

        def held(name: str, key: str) -> int:
            entry = by_name[name].entries.get(place_of(key)) if name in by_name else None
            return 0 if entry is None else entry.reservoir.state.lease.leased + entry.reservoir.state.lease.pledged

        for store in self.stores:
            store.leave(instant, held)

    def arrive(self) -> None:
        for inside in list(self._insides.values()):
            inside.arrive()

    def _hear(self) -> None:
        with self.time.changed:
            self.arrive()

    def end(self) -> None:
        """Close the limiters that were closed here."""
        for inside in list(self._insides.values()):
            inside.rest()

    def store_of(self, original: Any) -> VirtualStore:
        """Return the store in place of this one: one for all who would share its buckets there."""
        inner = original._store if isinstance(original, AsyncMemoryStore) else original
        name = (inner.address, inner._prefix) if hasattr(inner, "_prefix") else inner
        if (found := self._stores.get(name)) is None:
            found = self._stores[name] = self._make_store(self.time)
            found.rules.heard = self._hear
        return found
