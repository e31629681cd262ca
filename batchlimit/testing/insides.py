"""The insides of limiters in virtual time: no thread or timer of their own, no deadline and no circuit breaker."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from batchlimit.aio.guarded_store import GuardedStore as AsyncGuardedStore
from batchlimit.aio.home import Due, Home
from batchlimit.aio.key_entry import KeyEntry as AsyncKeyEntry
from batchlimit.aio.registry import Registry as AsyncRegistry
from batchlimit.aio.waiting_task import WaitingTask
from batchlimit.base.steps import run
from batchlimit.base.waking import TaskEvent
from batchlimit.bucket.messages import Grant
from batchlimit.reservoir.denial_cache import NO_DENIALS
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.waiter import Fetch
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.refresher import Refresher
from batchlimit.sync.registry import Registry
from batchlimit.testing.faults import Failures
from batchlimit.testing.virtual_time import LOOK, TURNS, LoopEvent, ThreadEvent, VirtualTime

if TYPE_CHECKING:
    from batchlimit.testing.world import VirtualStore

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class PlainStore(GuardedStore):
    """Calls the store in the caller's thread, every time: after an outage the next call is served."""

    def _begin(self) -> None:
        super()._begin()
        self._failures = Failures(self.address)

    def call(self, key: str, work: Callable[[*Ts], T], *args: *Ts) -> T:
        with self._failures.counted():
            return work(*args)


class Attendant(Refresher):
    """Looks after key entries when the clock was moved, in the thread that moved it, which holds the clock."""

    _clock: VirtualTime

    def watch(self, entry: KeyEntry) -> None:
        with self._clock.changed:
            if entry.due < math.inf:
                self._plans.add(entry)
            self.arrive()

    def come_by(self, at: float) -> None:
        """Do nothing: keys that are idle may stay in memory."""

    def arrive(self) -> None:
        with self._clock.changed:
            if not self._stopping:
                self._tend_due()

    def stop(self) -> bool:
        self._stopping = True
        return False


class PatientReservoir(Reservoir):
    """Has callers wait until what is short fits, without a look each half second: there are 170,000 a day."""

    __slots__ = ()

    def granted(self, fetch: Fetch, grant: Grant, now: float, _jitter: float) -> None:
        """See Reservoir.granted; after a grant it asks at once."""
        super().granted(fetch, grant, now, jitter=1.0)
        state, denials = self.state, self.state.denials
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
        return ThreadEvent(self.clock)

    def task_event(self) -> TaskEvent:
        return LoopEvent(self.clock)


class VirtualRegistry(Registry):
    """A Registry in virtual time, in place of another one, whose quotas and options it has."""

    _refreshes = Attendant
    clock: VirtualTime
    _refresher: Attendant
    original: Registry
    buckets: "VirtualStore"

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
        self.store, self.attempt = PlainStore(self._opened, self._options.deadline), self.clock.changed
        super()._begin()

    def _make(self, key: str, reservoir: Reservoir) -> KeyEntry:
        reservoir.__class__ = PatientReservoir
        return VirtualEntry(key, reservoir, self.store, self.clock, self._watch, self.finish)


class AsyncPlainStore(AsyncGuardedStore):
    """Calls the store, every time: after an outage the next call is served."""

    def _begin(self) -> None:
        super()._begin()
        self._sender, self._failures = None, Failures(self.address)

    async def call(self, key: str, work: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        with self._failures.counted():
            return await work(*args)


class VirtualHome(Home):
    """A Home whose timer rings when the clock was moved; waiting tasks move it when no other task can go on."""

    clock: VirtualTime

    def move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        super().move_to(loop)
        self._patient: set[WaitingTask] = set()
        self._turns = 0  # until the clock is moved; 0: nobody counts

    def watch(self, thing: Due) -> None:
        if isinstance(thing, WaitingTask):
            self._patient.add(thing)
            self._count()
        super().watch(thing)

    def arrive(self) -> None:
        """After the clock was moved, by whatever thread: ring, if something is due."""
        if self._loop is not None and self._rings_at <= self.clock():
            with contextlib.suppress(RuntimeError):  # its loop was closed
                self._loop.call_soon_threadsafe(self._ring, context=Context())

    def turn(self, work: Callable[[], object]) -> None:
        """Do this in the thread of the loop: now, or before anything that another thread asks of it later."""
        loop = self._loop
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is loop:
            work()
        else:
            loop.call_soon_threadsafe(work, context=Context())

    def _set_timer(self, at: float) -> None:
        self._rings_at = at
        if at <= self.clock():
            self._loop.call_soon(self._ring, context=Context())

    def _count(self) -> None:
        if not self._turns:
            self._turns = TURNS
            self._loop.call_soon(self._turn, context=Context())

    def _turn(self) -> None:
        self._turns -= 1
        if self._turns:
            self._loop.call_soon(self._turn, context=Context())
            return
        self._patient = {each for each in self._patient if each.due < math.inf}
        if not self._patient:
            return
        if self.clock.held:
            self._turns = 1
            self._loop.call_later(LOOK, self._turn, context=Context())
            return
        self.clock.move(min(each.due for each in self._patient))
        self._count()


class AsyncVirtualRegistry(AsyncRegistry):
    """A Registry in virtual time, in place of another one, whose quotas and options it has."""

    clock: VirtualTime
    _lives = VirtualHome
    _home: VirtualHome
    original: AsyncRegistry
    buckets: "VirtualStore"

    def arrive(self) -> None:
        """After the clock was moved: ask anew, for a refusal is not remembered, and do what is due."""
        for entry in list(self.entries.values()):
            forget_denials(entry.reservoir)
            entry.reservoir.state.publish()
        known, before = self.rules.known, self.rules.known.in_force
        known.learn(self.buckets.rules.read(known.revision), self.clock())
        known.expire()
        if known.in_force is not before:
            self._home.turn(self._obey)
        self._home.arrive()

    def _obey(self) -> None:
        for entry in list(self.entries.values()):
            entry.reservoir.rule.reconsider(self.clock())
            entry.changed()

    def rest(self) -> None:
        if self.closed:
            self.original.closed, self.original.thread = True, 0

    def _begin(self) -> None:
        self.store = AsyncPlainStore(self._opened, self._options.deadline)
        super()._begin()

    def _make(self, key: str, reservoir: Reservoir) -> AsyncKeyEntry:
        reservoir.__class__ = PatientReservoir
        return super()._make(key, reservoir)
