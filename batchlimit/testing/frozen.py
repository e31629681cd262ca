"""frozen_limits: every limiter of the process in time that stands still until a test moves it."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from batchlimit.clock import steady
from batchlimit.quota.key import place_of, stored
from batchlimit.stores.memory import AsyncMemoryStore
from batchlimit.sync.registry import Registry
from batchlimit.testing import tasks, threads
from batchlimit.testing.length import seconds_of
from batchlimit.testing.scene import SCENE
from batchlimit.testing.virtual_store import VirtualStore
from batchlimit.testing.virtual_time import ROUNDING, VirtualTime

_Registry = threads.VirtualRegistry | tasks.VirtualRegistry


class FrozenLimits:
    """Limiters in time that stands still; `frozen_limits()` makes it.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.testing import frozen_limits
        >>> with frozen_limits() as limits:
        ...     limiter = RateLimiter.from_url("redis://localhost:6379/0", "5/minute")
        ...     limits.drain("ann")
        ...     print(limiter.try_acquire("ann"))
        ...     limits.advance(12)
        ...     print(limiter.try_acquire("ann"))
        False
        True
    """

    def __init__(self) -> None:
        self._time = VirtualTime()
        self._time.inhabitants.append(self)
        self._stores: dict[object, VirtualStore] = {}
        self._insides: weakref.WeakKeyDictionary[Any, _Registry] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<FrozenLimits of {len(self._insides)} limiters, {self.elapsed:g} s after the begin>"

    @property
    def elapsed(self) -> float:
        """Seconds that have passed since the begin, by `advance` and by calls that waited."""
        return self._time.elapsed

    def advance(self, seconds: float | str) -> None:
        """Let time pass: tokens flow in, and waiting callers are served.

        Args:
            seconds: how long; a number of seconds, or text such as "1m", "90s", "1d".

        Raises:
            ValueError, TypeError: it is no length of time.
        """
        length = seconds_of(seconds)
        self._time.move(self._time() + length + ROUNDING)

    def drain(self, key: str) -> None:
        """Empty the bucket of a key: its next caller is refused.

        Args:
            key: as limiters are asked for it.

        Raises:
            ValueError: no limiter has a quota for it.
        """
        self._fill(key, 0.0)

    def refill(self, key: str | None = None) -> None:
        """Fill the bucket of a key, as if nobody had called for long.

        Args:
            key: as limiters are asked for it (default None: all buckets).

        Raises:
            ValueError: no limiter has a quota for it.
        """
        if key is not None:
            self._fill(key, 1.0)
            return
        for store in self._stores.values():
            store.refill()
        self.arrive()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Within this block a waiting call does not move the clock: it waits until the test does.

        Example:
            >>> from batchlimit.testing import frozen_limits
            >>> with frozen_limits() as limits, limits.holding():
            ...     limits.advance(1)
        """
        self._time.held = True
        try:
            yield
        finally:
            self._time.held = False
            self._time.move(self._time())  # whoever waits may move it now

    def inside(self, limiter: Any, original: Any) -> _Registry | None:
        """See World."""
        if original.clock is not steady:
            return None  # it lives in a time of its own
        with self._lock:
            if (found := self._insides.get(limiter)) is None:
                found = self._insides[limiter] = self._made(original)
            return found

    def leave(self, instant: float) -> None:
        """See virtual_time.Moved."""
        by_name = {each._keyspace._instance.name: each for each in list(self._insides.values())}

        def held(name: str, key: str) -> int:
            entry = by_name[name].entries.get(place_of(key)) if name in by_name else None
            return 0 if entry is None else entry.reservoir.state.lease.leased + entry.reservoir.state.lease.pledged

        for store in list(self._stores.values()):
            store.leave(instant, held)

    def arrive(self) -> None:
        """See virtual_time.Moved."""
        for inside in list(self._insides.values()):
            inside.arrive()

    def end(self) -> None:
        """Let nobody spend in this time any more."""
        for inside in list(self._insides.values()):
            inside.rest()

    def _made(self, original: Any) -> _Registry:
        store = self._store_of(original._opened)
        if isinstance(original, Registry):
            return threads.VirtualRegistry(original, store, self._time)
        return tasks.VirtualRegistry(original, store, self._time)

    def _store_of(self, original: Any) -> VirtualStore:
        """Return the store in place of this one: one for all limiters that would share their buckets there."""
        inner = original._store if isinstance(original, AsyncMemoryStore) else original
        name = (inner.address, inner._prefix) if hasattr(inner, "_prefix") else inner
        if (found := self._stores.get(name)) is None:
            found = self._stores[name] = VirtualStore(self._time)
        return found

    def _fill(self, key: str, part: float) -> None:
        quotas = [(each, quota) for each in list(self._insides.values()) if (quota := _quota(each._rule, key))]
        if not quotas:
            raise ValueError(f"no limiter has a quota for {key!r}, so it has no bucket; name the key as limiters do")
        for each, quota in quotas:
            each.buckets.fill(stored(key), quota, part)
        self.arrive()


def _quota(rule: Callable[[str], Any], key: str) -> Any:
    try:
        return rule(key)
    except ValueError:
        return None


@contextlib.contextmanager
def frozen_limits() -> Iterator[FrozenLimits]:
    """Have all limiters of this process live in time that stands still, for the length of a block.

    Every limiter is concerned, made before or within, on whatever store: its buckets are in memory, full, and begin
    anew with each block. A limiter that was given a `clock` keeps that, and its store. A call that waits moves the
    clock instead of sleeping. Nothing happens in background threads.

    Returns:
        A context manager, whose value is FrozenLimits.

    Example:
        >>> from batchlimit import RateLimiter
        >>> with frozen_limits() as limits:
        ...     limiter = RateLimiter.from_url("redis://localhost:6379/0", "5/minute")
        ...     print([limiter.try_acquire("ann") for _ in range(6)])
        ...     limiter.acquire("ann", timeout=60)
        ...     print(round(limits.elapsed), "seconds later")
        [True, True, True, True, True, False]
        12 seconds later
    """
    limits = FrozenLimits()
    leave = SCENE.enter(limits)
    try:
        yield limits
    finally:
        leave()
        limits.end()
