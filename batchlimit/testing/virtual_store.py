"""Buckets in virtual time: exactly one token bucket a key, whatever limiters lease of it."""

import math
from collections.abc import Callable
from typing import Any

from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.fair_share import Claims
from batchlimit.bucket.messages import Ask
from batchlimit.bucket.spendable import InstanceEntry, InstanceTable
from batchlimit.quota.overrides.overrides import Change
from batchlimit.quota.quota import Quota
from batchlimit.stores.memory import MemoryStore
from batchlimit.stores.memory_parts import MemoryRules
from batchlimit.stores.outage import too_late
from batchlimit.testing.faults import Faulty, FaultyCalls
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
    """A MemoryStore whose time is moved. Before each move it learns which of the leased tokens were spent.

    A real bucket learns that with the next request, or when the lease ends a quarter of a second later. Until then a
    full bucket that lends one token does not refill: a test would find a token fewer than it reckons.
    """

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
            bucket.peek(now)
            room = bucket._table.outstanding if part else 0
            bucket._levels = [max(0.0, band.burst * part - room) for band in bucket._bands]
            self._buckets[key] = bucket, now + bucket.expires_in()

    def forget(self) -> None:
        """Lose all buckets."""
        with self._lock:
            self._buckets.clear()

    def refill(self) -> None:
        """Have all buckets full."""
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
