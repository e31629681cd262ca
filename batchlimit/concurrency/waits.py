"""The waits of one event loop's tasks: ended a few at a time, so that the loop stays responsive however many wait."""

import asyncio
import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any
from weakref import WeakValueDictionary, ref

from batchlimit.base.waking import HEARTBEAT, RoundRobin

_LEAST = -20
"""Timeouts shorter than 2 to the power of this (1 us) are as one of that length."""

_FINENESS = 7
"""A timeout is late by 1/64 of it at the most: so many bits of it, the first included, are looked at."""


_SETTLE = attrgetter("settle")
Slot = dict[Any, None]
"""Waits that end at about the same time: of each `settle` is called then, in the loop."""


class Waits:
    """Ends waits in the thread of the loop: those that were woken, and those that timed out.

    Waits that end at about the same time share a slot, and a slot has one timer: a wait costs the same however many
    there are. The timers of the loop keep this, and it keeps the tasks that wait; nothing else does. So if the loop
    closes, the garbage collector finds them, with the places that they hold.
    """

    __slots__ = ("__weakref__", "_endless", "_looks", "_slots", "loop", "turns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.turns = RoundRobin(loop)
        self._slots: dict[tuple[int, int], Slot] = {}
        self._endless: Slot = {}
        self._looks: dict[Callable[[], object], _RepeatedLook] = {}

    def until(self, seconds: float) -> Slot:
        """Return the slot of waits that end in so many seconds."""
        if seconds == math.inf:
            return self._endless
        power = max(math.frexp(seconds)[1], _LEAST) - _FINENESS
        width = math.ldexp(1.0, power)
        key = power, math.ceil((self.loop.time() + seconds) / width)
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = {}
            self.loop.call_at(key[1] * width, self._ring, key)
        return slot

    def _ring(self, key: tuple[int, int]) -> None:
        self.turns.do(*map(_SETTLE, self._slots.pop(key)))

    def watch(self, look: Callable[[], object], pause: Callable[[], float]) -> None:
        """Call `look` after each pause (seconds), once for all its watchers, until each calls `unwatch`."""
        found = self._looks.get(look)
        if found is None:
            found = self._looks[look] = _RepeatedLook(self, look, pause)
        elif found.lost_at < self.loop.time():  # a signal handler that raised in the loop made it forget to look
            found.timer.cancel()
            found.ring()
        found.watchers += 1

    def unwatch(self, look: Callable[[], object]) -> None:
        """Take note that one watcher of `look` has ended its wait; after the last one `look` is not called any more."""
        found = self._looks.get(look)
        if found is not None:
            found.watchers -= 1
            if not found.watchers:
                self._looks.pop(look).timer.cancel()


class _RepeatedLook:
    """Calls a function again and again, for all tasks of one loop that wait for what time alone may bring."""

    __slots__ = ("_look", "_pause", "_waits", "lost_at", "timer", "watchers")

    def __init__(self, waits: Waits, look: Callable[[], object], pause: Callable[[], float]) -> None:
        self._waits, self._look, self._pause, self.watchers = waits, look, pause, 0
        self._plan()

    def _plan(self) -> None:
        loop, pause = self._waits.loop, self._pause()
        self.lost_at = loop.time() + pause + HEARTBEAT
        self.timer = loop.call_later(pause, self.ring)

    def ring(self) -> None:
        """Look, and plan the next look."""
        self._plan()
        self._look()
        self._waits.turns.begin()  # a signal handler that raised in the loop may have made it lose what was to go on


_all: WeakValueDictionary[int, Waits] = WeakValueDictionary()
"""By the identity of the loop: its waits keep it, so no other object has that meanwhile."""


def waits_of(loop: asyncio.AbstractEventLoop) -> Waits:
    """Return the waits of the loop that runs."""
    found = _all.get(id(loop))
    if found is None:
        found = _all[id(loop)] = Waits(loop)
    return found


class TaskWakeup:
    """What a task waits for, of the loop that runs when it is made."""

    __slots__ = ("__weakref__", "_future", "_loop", "_waits")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self._waits: Waits = waits_of(self._loop)

    def waker(self) -> Callable[[], None]:
        """Return its `wake` without keeping it: a queue keeps no task whose loop was closed, nor what that holds."""
        find = ref(self)

        def wake() -> None:
            if (found := find()) is None:
                raise RuntimeError("the task that waited is no more")
            found.wake()

        return wake

    def wake(self) -> None:
        """End the wait, from any thread; RuntimeError if the loop is closed."""
        if asyncio._get_running_loop() is self._loop:
            self._waits.turns.do(self.settle)  # in this turn of the loop or in one soon
        else:
            self._loop.call_soon_threadsafe(self._waits.turns.do, self.settle)

    async def wait(
        self, seconds: float, pause: Callable[[], float] | None = None, look: Callable[[], object] | None = None
    ) -> None:
        """Return when woken, or after so many seconds and up to a 64th of that; meanwhile `look` after each pause."""
        slot = self._waits.until(seconds)
        slot[self] = None
        if look is not None and pause is not None:
            self._waits.watch(look, pause)
        try:
            await self._future
        finally:
            slot.pop(self, None)
            if look is not None:
                self._waits.unwatch(look)

    def settle(self) -> None:
        """End the wait, in its loop; a second time it changes nothing."""
        if not self._future.done():
            self._future.set_result(None)


class BlockTask:
    """The task in an `async with` block. It may be cancelled there, by whoever turns that into another error."""

    __slots__ = ("_cancels", "_task", "is_cancelled", "loop")

    def __init__(self) -> None:
        self._task, self.loop = asyncio.current_task(), asyncio.get_running_loop()
        self._cancels = self._task.cancelling() if self._task else 0  # by others, before
        self.is_cancelled = False

    def cancel(self, why: str) -> None:
        """Cancel it, in its loop: so it stands at an await within the block."""
        if self._task is not None:
            self.is_cancelled = self._task.cancel(why)

    def ends_by(self, error: BaseException | None) -> bool:
        """End the block; return whether this cancellation is why, unless somebody else wants the task cancelled too."""
        if not self.is_cancelled or self._task is None or self._task is not asyncio.current_task():
            return False  # of another task: the block was handed on, by an exit stack or a generator
        others = self._task.uncancel() > self._cancels
        return isinstance(error, asyncio.CancelledError) and not others
