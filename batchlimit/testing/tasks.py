"""The inside of an AsyncRateLimiter in virtual time: no timer of the loop, no deadline and no circuit breaker."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TypeVar, TypeVarTuple

from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.home import Due, Home, Timer
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.aio.registry import Registry
from batchlimit.aio.waiting_task import WaitingTask
from batchlimit.bucket.messages import Grant
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.waiter import Fetch
from batchlimit.testing.threads import be_patient, failures_of, forget_denials
from batchlimit.testing.virtual_store import VirtualStore
from batchlimit.testing.virtual_time import TURNS, VirtualTime

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class AsyncPlainStore(GuardedStore):
    """Calls the store, every time: after an outage the next call is served."""

    def _begin(self) -> None:
        super()._begin()
        self._sender = None

    async def call(self, key: str, work: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        with failures_of(self.address):
            return await work(*args)


class VirtualTimer(Timer):
    """Comes to each thing when the clock was moved to its `due`; waiting tasks move it when no other task can go on."""

    _clock: VirtualTime

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: VirtualTime) -> None:
        super().__init__(loop, clock)
        self._patient: set[WaitingTask] = set()
        self._turns = 0  # until the clock is moved; 0: nobody counts

    def watch(self, thing: Due) -> None:
        if isinstance(thing, WaitingTask):
            self._patient.add(thing)
            self._count()
        super().watch(thing)

    def arrive(self) -> None:
        """After the clock was moved, by whatever thread: ring, if something is due."""
        if self._rings_at <= self._clock():
            with contextlib.suppress(RuntimeError):  # its loop was closed
                self._loop.call_soon_threadsafe(self._ring, context=Context())

    def _set_timer(self, at: float) -> None:
        self._rings_at = at
        if at <= self._clock():
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
        if self._clock.held:
            self._turns = 1
            self._loop.call_later(_LOOK, self._turn, context=Context())
            return
        self._clock.move(min(each.due for each in self._patient))
        self._count()


_LOOK = 0.001
"""Seconds of real time after which a timer looks again whether the clock is held."""


class VirtualHome(Home):
    """A Home with a timer in virtual time."""

    clock: VirtualTime
    _timer: VirtualTimer | None

    def move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        super().move_to(loop)
        self._timer = VirtualTimer(loop, self.clock)

    def turn(self, work: Callable[[], object]) -> None:
        """Do this in the thread of the loop: now, or before anything that another thread asks of it later."""
        loop = self._loop
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is loop:
            work()
        else:
            loop.call_soon_threadsafe(work, context=Context())

    def arrive(self) -> None:
        """After the clock was moved: do what is due."""
        if self._timer is not None:
            self._timer.arrive()


class AsyncVirtualEntry(KeyEntry):
    """A KeyEntry whose callers wait until what is short fits."""

    __slots__ = ()

    def _granted(self, fetch: Fetch, grant: Grant) -> None:
        super()._granted(fetch, grant)
        be_patient(self.reservoir, fetch, grant)


class AsyncVirtualRegistry(Registry):
    """A Registry in virtual time, in place of another one, whose quotas and options it has."""

    clock: VirtualTime
    _home: VirtualHome
    original: Registry
    buckets: VirtualStore

    def arrive(self) -> None:
        """After the clock was moved: ask anew, for a refusal is not remembered, and do what is due."""
        for entry in list(self.entries.values()):
            forget_denials(entry.reservoir)
            entry.reservoir.state.publish()
        self._learn()
        self._home.arrive()

    def _learn(self) -> None:
        known, before = self.rules.known, self.rules.known.in_force
        known.learn(self.buckets.rules.read(known.revision), self.clock())
        known.expire()
        if known.in_force is not before:
            self._home.turn(self._obey)

    def _obey(self) -> None:
        for entry in list(self.entries.values()):
            entry.reservoir.rule.reconsider(self.clock())
            entry.changed()

    def rest(self) -> None:
        """End: a limiter that was closed here is closed."""
        if self.closed:
            self.original.closed, self.original.thread = True, 0

    def _begin(self) -> None:
        self.store = AsyncPlainStore(self._opened, self._options.deadline)
        super()._begin()
        self._home = VirtualHome(self.store, self.clock, self._keyspace.let_go)

    def _make(self, key: str, reservoir: Reservoir) -> KeyEntry:
        return AsyncVirtualEntry(key, reservoir, self._home)
