"""limiting_off and limiting_on: no limiter of the process refuses, for a block or from now on."""

import math
from contextlib import ExitStack

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, Level, SpendReply, Spent
from batchlimit.quota.quota import Quota
from batchlimit.testing.scene import SCENE, World
from batchlimit.testing.virtual_store import VirtualStore
from batchlimit.testing.world import VirtualWorld

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

    has_open_gates = True

    def __init__(self) -> None:
        super().__init__(FullStore, change_quota=lambda quota: _ANY if quota.denies_all else quota)


def _entered(world: World | None) -> ExitStack:
    """Return what ends this world, if it is used: the world holds from now on."""
    until = ExitStack()
    until.callback(SCENE.enter(world))
    return until


def limiting_off() -> ExitStack:
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


def limiting_on() -> ExitStack:
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
