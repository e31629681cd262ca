"""The timer of one lease in one event loop: it tells the blocks of all its permits when the lease is over."""

import asyncio
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from batchlimit.shared.lease import Lease

_SECOND = 1_000_000_000
_SOONEST = 0.001
"""Seconds until the lease is looked at again, at least: timers and clocks do not agree to the last digit."""


class Watched(Protocol):
    """A permit in a block."""

    def look(self) -> None:
        """End the block if the permit is lost; in its loop."""
        ...


class LeaseWatch:
    """Rings when a lease would be over, for as long as permits are in blocks. A permit costs it no timer.

    Only its timer and its permits keep it: if the loop closes during a block, the garbage collector finds the permit.

    Attributes:
        loop: The event loop.
    """

    __slots__ = ("__weakref__", "_clock", "_is_planned", "_lease", "_permits", "loop")

    def __init__(self, lease: Lease, loop: asyncio.AbstractEventLoop, clock: Callable[[], int]) -> None:
        self._lease, self.loop, self._clock = lease, loop, clock
        self._permits: dict[Watched, None] = {}
        self._is_planned = False

    def __repr__(self) -> str:
        return f"<LeaseWatch of {len(self._permits)} permits>"

    def add(self, permit: Watched) -> None:
        """Tell a permit when the lease is over; in the loop."""
        self._permits[permit] = None
        if not self._is_planned:
            self._plan()

    def remove(self, permit: Watched) -> None:
        """Tell a permit no more; a second time it changes nothing."""
        self._permits.pop(permit, None)

    def _plan(self) -> None:
        rest = (self._lease.until - self._clock()) / _SECOND
        self._is_planned = rest != float("inf")  # else the place was given without the store
        if self._is_planned:
            self.loop.call_later(max(_SOONEST, rest), self._ring)

    def _ring(self) -> None:
        self._is_planned = False
        if self._lease.is_over(self._clock()):
            for permit in list(self._permits):
                permit.look()
        elif self._permits:
            self._plan()


_all: WeakValueDictionary[tuple[int, int], LeaseWatch] = WeakValueDictionary()
"""By the identities of lease and loop: a watch keeps both, so no other object has them meanwhile."""


def watch_of(lease: Lease, clock: Callable[[], int]) -> LeaseWatch:
    """Return the watch of a lease in the loop that runs."""
    loop = asyncio.get_running_loop()
    found = _all.get((id(lease), id(loop)))
    if found is None:
        found = _all[id(lease), id(loop)] = LeaseWatch(lease, loop, clock)
    return found
