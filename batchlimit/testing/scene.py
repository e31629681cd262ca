"""Which world the rate limiters of this process live in: the real one, or one of the testing kit."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from batchlimit.admin.admin import Admin
from batchlimit.base.unique import adopters, live_limiters
from batchlimit.base.waiting import LONG_AGO
from batchlimit.reservoir.tokens import FreeTokens
from batchlimit.testing.gates import Gates
from batchlimit.testing.threads import VirtualRegistry, VirtualSlowPath
from batchlimit.testing.virtual_time import VirtualTime


class World(Protocol):
    """Has another inside for limiters."""

    def inside(self, limiter: Any, original: Any) -> Any:
        """Return the registry for a limiter, in place of the original one; None: it stays as it is."""
        ...

    def store_of(self, original: Any) -> Any:
        """Return the store whose overrides an Admin changes, in place of the original one."""
        ...

    @property
    def has_open_gates(self) -> bool:
        """Whether concurrency limiters let every call pass."""
        ...

    @property
    def gate_time(self) -> VirtualTime | None:
        """In which callers wait at concurrency limiters; None: in the real time."""
        ...


class Scene:
    """The worlds that were entered, one in the other. All limiters live in the innermost; None is the real one.

    A limiter that is made later is moved there as soon as it is made. Its first registry is kept, and comes back when
    all worlds were left. A hit does not know of this: it finds other tokens.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # held to change what limiters live in
        self._worlds: list[tuple[object, World | None]] = []
        self._gates = Gates()
        self._originals: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @property
    def worlds(self) -> list[World | None]:
        """All that were entered, the outermost first."""
        return [world for _, world in self._worlds]

    @property
    def world(self) -> World | None:
        """The world that limiters live in."""
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
        self._gates.restore()
        if self.world is not None and self.world.has_open_gates:
            self._gates.open()
        elif self.world is not None and self.world.gate_time is not None:
            self._gates.freeze(self.world.gate_time)

    def _adopt(self, limiter: Any) -> None:
        if getattr(limiter, "is_fake", False):
            return
        with self._lock:
            if isinstance(limiter, Admin):
                limiter._work_on(limiter._opened if self.world is None else self.world.store_of(limiter._opened))
                return
            original = self._originals.setdefault(limiter, limiter._registry)
            registry = None if self.world is None else self.world.inside(limiter, original)
            _put(limiter, original if registry is None else registry)


def _put(limiter: Any, registry: Any) -> None:
    if limiter._registry is not registry:
        for entry in list(limiter._registry.entries.values()):
            entry.tokens = FreeTokens(LONG_AGO)  # a handle of a key may know it: it is to ask the limiter
        for entry in list(registry.entries.values()):
            entry.tokens = entry.reservoir.tokens
        limiter._use(registry)
        if isinstance(registry, VirtualRegistry):
            limiter._slow_path = VirtualSlowPath(registry)


SCENE = Scene()
"""Of this process."""
