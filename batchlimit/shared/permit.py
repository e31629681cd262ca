"""Permission for one call to be under way in the fleet: SharedPermit for a thread, AsyncSharedPermit for a task."""

import asyncio
import warnings
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from batchlimit.base.key import check_key
from batchlimit.base.steps import drive
from batchlimit.base.unique import Unique
from batchlimit.concurrency.waits import BlockTask, Slot, TaskWakeup, waits_of
from batchlimit.errors import PermitLost
from batchlimit.shared.held_slots import Place

if TYPE_CHECKING:
    from batchlimit.shared.engine import Engine


class BaseSharedPermit(Unique):
    """What the permits of threads and of tasks share."""

    __slots__ = ("__weakref__", "_engine", "_is_lost", "_place", "key")
    _instead = "complete it where it was acquired, and acquire another one there"
    _place: Place | None

    def __init__(self, engine: "Engine", key: str) -> None:
        self._place: Place | None = None
        self._is_lost: bool | None = None  # known when it is released
        self._engine, self.key = engine, key if key.__class__ is str else check_key(key)

    def __repr__(self) -> str:
        state = "not entered"
        if self._place is not None:
            state = "lost" if self.lost else "held" if self._is_lost is None else "released"
        return f"<{type(self).__name__} of {self.key!r}: {state}>"

    @property
    def token(self) -> int:
        """A number for writes to other systems, which are to refuse smaller ones than they have seen (fencing).

        It is larger than the token of every lease that was over before this one was granted. 0: the permit was given
        while the store was away, and nothing is promised.
        """
        return self._held.token

    @property
    def lost(self) -> bool:
        """Whether the slot may belong to somebody else by now; of a released permit: at its release."""
        if self._is_lost is None:
            return self._held.is_lost(self._engine.clock())
        return self._is_lost

    def check(self) -> None:
        """Raise if this permit is lost; a long call is to call this before each step that others must not see twice.

        Raises:
            PermitLost: The permit is lost.
        """
        if self.lost:
            raise PermitLost(self.key, self.token)

    def release(self) -> None:
        """Give the permit back, from any thread. A second time it changes nothing."""
        place, engine = self._held, self._engine
        if self._is_lost is None:
            is_lost = place.is_lost(engine.clock())
            if engine.holdings.lock._is_owned():  # this came during another call of this thread
                engine.abandon(place)
            else:
                engine.holdings.change(self.key, lambda slots, now: slots.leave(place, now))
            self._is_lost = is_lost  # last: who is interrupted before has not released it

    @property
    def _held(self) -> Place:
        if self._place is None:
            raise RuntimeError(f"{self!r} was not acquired: was it awaited?")
        return self._place

    def __del__(self) -> None:
        place = getattr(self, "_place", None)
        if place is not None and self._is_lost is None:
            self._engine.abandon(place)
            warnings.warn(f"{self!r} was never released", ResourceWarning, stacklevel=2, source=self)


class SharedPermit(BaseSharedPermit):
    """Permission for one call to be under way in the fleet. The end of its `with` block releases it; so does `release`.

    Nobody can end a thread: a call that takes long has to `check` whether the permit is lost.

    Attributes:
        key: The key.

    Example:
        >>> from batchlimit.shared import SharedConcurrencyLimiter
        >>> with SharedConcurrencyLimiter.from_url("memory://", {"gpu": 64}) as limiter:
        ...     with limiter.acquire("gpu") as permit:
        ...         permit.check()
        ...         permit.lost
        False
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        if self._is_lost is not None:
            raise RuntimeError(f"{self!r} was released before")
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class AsyncSharedPermit(BaseSharedPermit):
    """Permission for one call to be under way in the fleet: the context of an `async with` block, or to be awaited.

    The task enters at `async with` or `await`, no sooner. The end of the block releases the permit, and so does
    `release`. If the permit is lost in an `async with` block, its task is cancelled there, and the block ends in
    PermitLost, unless `cancel=False` of `acquire` says otherwise. The task that entered such a block has to leave it,
    as with asyncio.timeout.

    Attributes:
        key: The key.

    Raises:
        ConcurrencyLimited: The call was refused where it would enter; `reason` says why.
        LimiterClosed: The limiter was closed.
        StoreUnavailable: The store is away, and `on_failure` is "closed".

    Example:
        >>> from batchlimit.shared import AsyncSharedConcurrencyLimiter
        >>> async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"gpu": 64}) as limiter:
        ...     async with limiter.acquire("gpu") as permit:
        ...         permit.lost
        False
    """

    __slots__ = ("_block", "_enters", "_may_cancel", "_priority", "_slot", "_timeout")

    def __init__(self, engine: "Engine", key: str, timeout: float, priority: int, may_cancel: bool) -> None:
        super().__init__(engine, key)
        self._timeout, self._priority, self._may_cancel = timeout, priority, may_cancel
        self._block: BlockTask | None = None
        self._slot: Slot = {}
        self._enters = False

    def __await__(self) -> Generator[Any, None, Self]:
        if self._place is not None:
            raise RuntimeError(f"{self!r} was awaited before")
        return self._entered().__await__()

    async def _entered(self) -> Self:
        if self._enters:
            raise RuntimeError(f"{self!r} is being awaited by another task: let each acquire its own")
        self._enters = True
        try:
            if waits := self._engine.enter(self, self._timeout, self._priority, TaskWakeup):
                await drive(self._engine.waiting(self, *waits))
        finally:
            self._enters = False
        return self

    async def __aenter__(self) -> Self:
        if self._place is None:
            await self._entered()
        if self._is_lost is not None:
            raise RuntimeError(f"{self!r} was released before")
        if self._may_cancel:
            self._block = BlockTask()
            place, now = self._held, self._engine.clock()
            place.holder = ref(self)
            if place.is_lost(now):
                self._block.loop.call_soon(self.settle)  # the block may end before a running task hears
            else:
                self._watch(place.lease.until - now)
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._slot.pop(self, None)
        self.release()
        if self._block is not None and self._block.ends_by(error):
            raise PermitLost(self.key, self.token) from error

    def _watch(self, ns: float) -> None:
        """Have `settle` called when the lease would be over: blocks whose leases end together cost one timer."""
        self._slot = waits_of(asyncio.get_running_loop()).until(max(_SOONEST, ns / _SECOND))
        self._slot[self] = None

    def hurry(self) -> None:
        """Look now, from any thread; if the loop is closed, nobody is in the block any more."""
        if self._block is not None:
            with suppress(RuntimeError):
                self._block.loop.call_soon_threadsafe(self.settle)

    def settle(self) -> None:
        """Cancel the task if the permit is lost, else look again when its renewed lease would be over; in its loop."""
        if self._is_lost is not None or self._block is None or self._block.is_cancelled:
            return
        now = self._engine.clock()
        if self._held.is_lost(now):
            self._block.cancel(f"{self!r}")
        else:
            self._slot.pop(self, None)
            self._watch(self._held.lease.until - now)


_SECOND = 1_000_000_000
_SOONEST = 0.001
"""Seconds until the lease is looked at again, at least: timers and clocks do not agree to the last digit."""
