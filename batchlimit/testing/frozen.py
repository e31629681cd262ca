"""frozen_limits: every limiter in time that stands still until a test moves it; limiting_off: none refuses."""

import contextlib
import math
from collections.abc import Iterator
from datetime import timedelta

from batchlimit.base.clock import steady
from batchlimit.base.key import stored
from batchlimit.base.redaction import shown
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, Level, SpendReply, Spent
from batchlimit.quota.quota import Quota
from batchlimit.testing.scene import SCENE, World, opened
from batchlimit.testing.world import VirtualStore, VirtualWorld


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

    def __init__(self, world: VirtualWorld) -> None:
        self._world, self._time = world, world.time

    def __repr__(self) -> str:
        return f"<FrozenLimits {self.elapsed:g} s after the begin>"

    @property
    def elapsed(self) -> float:
        """Seconds that have passed since the begin, by `advance` and by calls that waited."""
        return self._time.elapsed

    def advance(self, seconds: float | str | timedelta) -> None:
        """Let time pass: tokens are refilled, and waiting callers are served.

        Args:
            seconds: how long; a number of seconds, text such as "1m", "90s", "1d", or a timedelta.

        Raises:
            ValueError, TypeError: it is no length of time.
        """
        self._time.advance(seconds)

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
        self._world.leave(self._time())  # what is spent is spent before
        for store in list(self._world.stores.values()):
            store.refill()
        self._world.arrive()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Within this block a waiting call does not move the clock: it waits until the test does.

        Returns:
            A context manager.

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

    def _fill(self, key: str, part: float) -> None:
        if not (buckets := self._world.buckets(key)):
            what = "so it has no bucket; name the key as limiters do"
            raise ValueError(f"no limiter has a quota for {shown(key)}, {what}")
        self._world.leave(self._time())  # what is spent is spent before
        for store, quota in buckets:
            store.fill(stored(key), quota, part)
        self._world.arrive()


@contextlib.contextmanager
def frozen_limits() -> Iterator[FrozenLimits]:
    """Have all limiters of this process live in time that stands still, for the length of a block.

    Every limiter is concerned, made before or within, on whatever store: its buckets are in memory, full, and begin
    anew with each block. An Admin sets overrides for them, which the store never sees.
    Callers of concurrency limiters wait in this time as well. A limiter that was given a `clock`
    keeps that, and its store. A call that waits moves the clock instead of sleeping. Nothing happens in background
    threads.

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
    world = VirtualWorld(concerns=lambda registry: registry.clock is steady)
    leave = SCENE.enter(world)
    try:
        yield FrozenLimits(world)
    finally:
        leave()
        world.end()


_ANY = Quota(1e9, 2**40)
"""In place of a quota that admits nothing."""
_LEASE = 60.0
"""Seconds of a time that stands still."""


class FullStore(VirtualStore):
    """Lends whatever is wanted: its buckets are always full."""

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        return Grant(ask.want, ask.held, 0.0, _LEASE, 0.0, quota.largest_cost, 1, 1, 1)

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        full = [[tuple([float(band.burst) for band in each.quota.bandwidths]) for each in group] for group in groups]
        return SpendReply(-1, [tuple([Spent(True, 0.0, 1, levels) for levels in each]) for each in full])

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        return 0

    def peek(self, key: str, quota: Quota) -> Level:
        return Level(quota.largest_cost, 0, 0)


class _Off(VirtualWorld):
    """The world without limits."""

    def __init__(self) -> None:
        super().__init__(FullStore, change_quota=lambda quota: _ANY if quota.denies_all else quota)
        self.change_gate = opened


def _entered(world: World | None) -> contextlib.ExitStack:
    """Return what ends this world, if it is used: the world holds from now on."""
    until = contextlib.ExitStack()
    until.callback(SCENE.enter(world))
    return until


def limiting_off() -> contextlib.ExitStack:
    """Have every limiter of this process admit every call, from now on, or for the length of a `with` block.

    Wrong keys and costs raise as ever. A decision tells of a full bucket, no store is asked, and nothing is counted
    when limits are on again. A limiter that is on takes no longer for this: nothing looks at a flag. A concurrency
    limiter counts the calls as `bypassed`; those that wait already go on waiting.

    Returns:
        A context manager, which need not be used.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.testing import limiting_off
        >>> limiter = RateLimiter.from_url("memory://", "1/hour")
        >>> with limiting_off():
        ...     [limiter.try_acquire("ann") for _ in range(3)]
        [True, True, True]
        >>> [limiter.try_acquire("ann") for _ in range(3)]
        [True, False, False]
    """
    return _entered(_Off())


def limiting_on() -> contextlib.ExitStack:
    """Have limiters limit again, where `limiting_off` was called: from now on, or for the length of a `with` block.

    Returns:
        A context manager, which need not be used.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.testing import limiting_off, limiting_on
        >>> limiter = RateLimiter.from_url("memory://", "1/hour")
        >>> with limiting_off(), limiting_on():
        ...     [limiter.try_acquire("ann") for _ in range(3)]
        [True, False, False]
    """
    return _entered(next((each for each in reversed(SCENE.worlds) if not isinstance(each, _Off)), None))
