"""The inside of a RateLimiter in virtual time: no thread of its own, no deadline and no circuit breaker."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TypeVar, TypeVarTuple

from batchlimit.base.steps import run
from batchlimit.base.waking import TaskEvent
from batchlimit.bucket.messages import Grant
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.key_spend import Settled
from batchlimit.reservoir.denial_cache import NO_DENIALS
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.waiter import Fetch
from batchlimit.stores.outage import addressed, unavailable
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.refresher import Refresher
from batchlimit.sync.registry import Registry
from batchlimit.sync.slow_path import SlowPath
from batchlimit.testing.virtual_store import VirtualStore
from batchlimit.testing.virtual_time import LoopEvent, ThreadEvent, VirtualTime

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@contextmanager
def failures_of(address: str) -> Iterator[None]:
    """Have whatever a call of the store raises be StoreUnavailable, which names its address."""
    try:
        yield
    except StoreUnavailable as error:
        raise addressed(error, address) from error.__cause__
    except Exception as error:
        raise addressed(unavailable(error), address) from error


class PlainStore(GuardedStore):
    """Calls the store in the caller's thread, every time: after an outage the next call is served."""

    def call(self, key: str, work: Callable[[*Ts], T], *args: *Ts) -> T:
        with failures_of(self.address):
            return work(*args)


class Attendant(Refresher):
    """Looks after key entries when the clock was moved, in the thread that moved it, which holds the clock."""

    _clock: VirtualTime

    def watch(self, entry: KeyEntry) -> None:
        """Come to this key entry at its `due`: now, if it is due already."""
        with self._clock.changed:
            if entry.due < math.inf:
                self._plans.add(entry)
            self.arrive()

    def come_by(self, at: float) -> None:
        """Do nothing: keys that are idle may stay in memory."""

    def arrive(self) -> None:
        """Do what is due."""
        with self._clock.changed:
            if not self._stopping:
                self._tend_due()

    def stop(self) -> bool:
        """Never look again."""
        self._stopping = True
        return False


def be_patient(reservoir: Reservoir, fetch: Fetch, grant: Grant) -> None:
    """Wait until what is short fits, without a look each half a second: a wait of a day would take 170,000 of them.

    After a grant ask at once: a pause that spares a server asks would refuse tokens that are in the bucket.
    """
    state, denials = reservoir.state, reservoir.state.denials
    if grant.granted >= fetch.ask.need and grant.starts_in == 0.0 and not state.denies_all:
        state.denials = NO_DENIALS
    else:
        state.denials = denials._replace(dry_until=max(denials.dry_until, denials.fits_at))


def forget_denials(reservoir: Reservoir) -> None:
    """Ask at once: what was short may fit by now; nothing does by a rate of 0."""
    if not reservoir.state.denies_all:
        reservoir.state.denials = NO_DENIALS


class VirtualEntry(KeyEntry):
    """A KeyEntry whose callers wait in virtual time."""

    __slots__ = ()
    clock: VirtualTime

    def thread_event(self) -> ThreadEvent:
        """Return what a thread is to wait on."""
        return ThreadEvent(self.clock)

    def task_event(self) -> TaskEvent:
        """Return what a task is to wait on."""
        return LoopEvent(self.clock)

    def granted(self, fetch: Fetch, grant: Grant) -> None:
        """See KeyEntry; whoever is short waits until its tokens have flowed in."""

        def take_in() -> None:
            self.reservoir.granted(fetch, grant, self.clock(), jitter=1.0)
            be_patient(self.reservoir, fetch, grant)

        self.locked(take_in)


class VirtualSlowPath(SlowPath):
    """Decides one call at a time: while a thread decides, no other thread moves the clock. One that waits lets others.

    Else another thread could move the clock past the lease of tokens that are on their way to this caller.
    """

    def _admit(self, key: str, cost: int, until: float, priority: int = 1) -> Settled:
        with self._registry.attempt:
            return super()._admit(key, cost, until, priority)

    def try_at(self, entry: KeyEntry, key: str, cost: int) -> bool:
        with self._registry.attempt:
            return super().try_at(entry, key, cost)


class VirtualRegistry(Registry):
    """A Registry in virtual time, in place of another one, whose quotas and options it has."""

    _refreshes = Attendant
    clock: VirtualTime
    _refresher: Attendant
    original: Registry
    buckets: VirtualStore

    @property
    def attempt(self) -> AbstractContextManager[object]:  # type: ignore[override]
        """See Registry.attempt."""
        return self.clock.changed

    def arrive(self) -> None:
        """After the clock was moved: ask anew, for a refusal is not remembered, and do what is due."""
        for entry in list(self.entries.values()):
            entry.locked(partial(forget_denials, entry.reservoir))
        run(self.rules.read())
        self.rules.expire()
        self._refresher.arrive()

    def rest(self) -> None:
        """End: a limiter that was closed here is closed."""
        if self.closed:
            self.original.close()

    def _begin(self) -> None:
        self.store = PlainStore(self._opened, self._options.deadline)
        super()._begin()

    def _make(self, key: str, reservoir: Reservoir) -> KeyEntry:
        return VirtualEntry(key, reservoir, self.store, self.clock, self._watch, self.finish)
