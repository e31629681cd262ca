"""Which world the rate limiters of this process live in: the real one, or one of the testing kit."""

import math
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from batchlimit.admin.admin import Admin
from batchlimit.base.forks import Forkables
from batchlimit.base.key import check_key
from batchlimit.base.unique import adopters, live_limiters
from batchlimit.base.waiting import LONG_AGO
from batchlimit.concurrency.keyed.gates import KeyedGates, live_tables
from batchlimit.concurrency.locked_gate import LockedGate, live_gates
from batchlimit.errors import LimiterClosed
from batchlimit.reservoir.tokens import FreeTokens
from batchlimit.shared.engine import CLOSED, Engine, live_engines
from batchlimit.shared.held_slots import Place, SlotLease
from batchlimit.shared.permit import BaseSharedPermit
from batchlimit.testing.insides import VirtualRegistry
from batchlimit.testing.virtual_time import VirtualTime

Undo = Callable[[Any], object]
"""Undoes the change of a gate, a table or an engine, which it is given: it keeps none of them alive."""


def _unchanged(_one: object) -> None:
    pass


def opened(one: LockedGate | KeyedGates | Engine) -> Undo:
    """Let every call pass by; those that wait already go on waiting. What is of a table has a gate of its own."""
    if isinstance(one, KeyedGates):
        return _unchanged
    if isinstance(one, Engine):
        one.enter = _enter  # type: ignore[method-assign, assignment]
        return lambda engine: delattr(engine, "enter")
    find, before = weakref.ref(one), one.bypass
    # Everybody passes, as long as the limiter is not closed.
    one.bypass = lambda _operation, _partition: (gate := find()) is not None and not gate.gate.is_closed
    return lambda gate: setattr(gate, "bypass", before)


def _enter(permit: BaseSharedPermit, *_wait: object) -> None:
    """Let a permit have a place that no store knows, whatever the limit of its key is."""
    if permit._engine.is_closed:
        raise LimiterClosed(CLOSED)
    permit._engine._limit_of(check_key(permit.key))
    permit._place = Place(SlotLease(math.inf), 0)


class MovedClock:
    """Another clock (ns), so much ahead: a law that has learned is never told of an earlier time."""

    def __init__(self, clock: Callable[[], int], ahead: int) -> None:
        self._clock, self._ahead = clock, ahead

    def __call__(self) -> int:
        return self._clock() + self._ahead


def frozen(virtual: VirtualTime, one: LockedGate | KeyedGates | Engine) -> Undo:
    """Have a gate go by this time that goes by the real one; a shared limiter goes by its store's."""
    real = time.monotonic_ns
    if isinstance(one, Engine) or not (one.clock is real or isinstance(one.clock, MovedClock)):
        return _unchanged  # or it has a clock of its own
    clock = MovedClock(virtual.nanoseconds, one.clock() - virtual.nanoseconds())

    def undo(one: LockedGate | KeyedGates) -> None:
        ahead = clock() - real()
        one.tell_time(MovedClock(real, ahead) if ahead > 0 else real, None)

    one.tell_time(clock, virtual)
    return undo


class World:
    """Has another inside for limiters: a registry in place of the original one, for each limiter that lives here."""

    change_gate: Callable[[Any], Undo] | None = None
    """Changes a gate of concurrency limiters, and returns what undoes that; None: they stay as they are."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()  # held to make an inside

    @property
    def insides(self) -> list[Any]:
        return [each for each in list(self._made.values()) if each is not None]

    def inside(self, limiter: Any, original: Any) -> Any:
        """Return the registry for a limiter; None: its original one stays."""
        with self._lock:
            if limiter not in self._made:
                self._made[limiter] = self.make(original)
            return self._made[limiter]

    def make(self, original: Any) -> Any:
        """Return a registry in place of the original one of a limiter; None: that stays."""
        raise NotImplementedError

    def store_of(self, original: Any) -> Any:
        """Return the store whose overrides an Admin changes, in place of the original one."""
        return original


class Scene:
    """The worlds that were entered, one in the other; all limiters live in the innermost. None is the real one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # held to change what limiters live in
        self._worlds: list[tuple[object, World | None]] = []
        self._changed: weakref.WeakKeyDictionary[Any, Undo] = weakref.WeakKeyDictionary()
        """The gates of this process that are not as their limiters made them, each with what undoes the change."""
        self._originals: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @property
    def worlds(self) -> list[World | None]:
        """All that were entered, the outermost first."""
        return [world for _, world in self._worlds]

    @property
    def world(self) -> World | None:
        return self._worlds[-1][1] if self._worlds else None

    def enter(self, world: World | None) -> Callable[[], None]:
        """Have all limiters live in this world; return what ends that."""
        entry = object(), world
        with self._lock:
            self._worlds.append(entry)
            self._move_all()

        def leave() -> None:
            with self._lock:
                if entry in self._worlds:
                    self._worlds.remove(entry)
                    self._move_all()

        return leave

    def _move_all(self) -> None:
        adopters[:] = [self._adopt] if self._worlds else []
        for limiter in list(live_limiters):
            self._adopt(limiter)
        if not self._worlds:
            self._originals.clear()
        self._change_gates(None if self.world is None else self.world.change_gate)

    def _change_gates(self, change: Callable[[Any], Undo] | None) -> None:
        """Have gates do again what they did, then change them, also those that are made later (None: change none)."""
        kinds: tuple[Forkables[Any], ...] = (live_gates, live_tables, live_engines)
        for kind in kinds:
            kind.adopters.clear()
        changed = list(self._changed.items())
        self._changed.clear()
        for one, undo in changed:
            undo(one)
        if change is None:
            return
        for kind in kinds:
            kind.adopters.append(partial(self._change_gate, change))
            for one in kind:
                self._change_gate(change, one)

    def _change_gate(self, change: Callable[[Any], Undo], one: Any) -> None:
        if one not in self._changed:
            self._changed[one] = change(one)

    def _adopt(self, limiter: Any) -> None:
        if getattr(limiter, "is_fake", False):
            return
        with self._lock:
            if isinstance(limiter, Admin):
                limiter._work_on(limiter._opened if self.world is None else self.world.store_of(limiter._opened))
                return
            original = self._originals.setdefault(limiter, limiter._registry)
            inside = None if self.world is None else self.world.inside(limiter, original)
            registry = original if inside is None else inside
            if limiter._registry is registry:
                return
            for entry in list(limiter._registry.entries.values()):
                entry.tokens = FreeTokens(LONG_AGO)  # a handle of a key may know it: it is to ask the limiter
            for entry in list(registry.entries.values()):
                entry.tokens = entry.reservoir.tokens
            limiter._use(registry)
            for name in ("_admit", "_try_at"):
                vars(limiter).pop(name, None)
                if isinstance(registry, VirtualRegistry):
                    setattr(limiter, name, _one_at_a_time(limiter, name, registry.attempt))


def _one_at_a_time(limiter: Any, name: str, attempt: Any) -> Callable[..., Any]:
    """Return a method that decides one call at a time: no thread is to move the clock past the lease of its tokens."""
    method, find = getattr(type(limiter), name), weakref.ref(limiter)

    def decide(*call: Any, **options: Any) -> Any:
        with attempt:
            return method(find(), *call, **options)

    return decide


SCENE = Scene()
"""Of this process."""
