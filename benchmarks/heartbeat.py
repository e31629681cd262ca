"""A load of tasks on one event loop, and beside it two witnesses of how long the loop stands still.

A heartbeat sleeps for a millisecond, over and over, and notes how late it wakes: what any other task feels, and the
machine's own hiccups with it. The loop's selector notes how long the loop works between two looks at what is new.
"""

import asyncio
import gc
import math
import random
import selectors
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from benchmarks.audited_fleet.caller import Stint

CALLS = 5000
"""How many calls all tasks together make, in a second."""
TASKS = 64
KEYS = 100
_BEAT = 0.001
# Seconds before the heartbeat begins: connecting, and all keys cold at once, are looked at apart.
_WARM_UP = 1.0


class Laps(selectors.DefaultSelector):
    """A loop's selector that notes how long the loop works between two looks at it: nothing else runs meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._clock = clock
        self._laps = array("d")
        self._woke = clock()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._laps.append(self._clock() - self._woke)
        try:
            return super().select(timeout)
        finally:
            self._woke = self._clock()

    def take(self) -> "array[float]":
        """Return what was noted since the last time."""
        laps, self._laps = self._laps, array("d")
        return laps


@dataclass(slots=True)
class Seen:
    """What the heartbeat and the selector saw beside one kind of call, in seconds, and what came of the calls."""

    late: "array[float]" = field(default_factory=lambda: array("d"))
    laps: "array[float]" = field(default_factory=lambda: array("d"))
    coldest: float = 0.0
    """The longest lap of the warm-up."""
    calls: int = 0
    admitted: int = 0
    waited: int = 0
    asks: int = 0

    @property
    def waited_share(self) -> float:
        return self.waited / max(1, self.calls)


async def observe(call: Callable[[str], Awaitable[bool]], seconds: float, laps: Laps, seen: Seen) -> None:
    """Have all tasks make their calls, each due at an instant of its own, and note what the witnesses see."""
    gc.collect()  # or what was made before, such as modules, would be gone through meanwhile
    await asyncio.sleep(0)
    laps.take()
    begin = time.monotonic()
    end = begin + _WARM_UP + seconds
    stints = [Stint(begin, end, CALLS / TASKS, number / TASKS) for number in range(TASKS)]
    callers = [asyncio.create_task(_keep_up(call, stint, number, seen)) for number, stint in enumerate(stints)]
    await asyncio.sleep(_WARM_UP)
    seen.coldest = max(seen.coldest, *laps.take())
    await _beat(end, seen.late)
    seen.laps.extend(laps.take())
    await asyncio.gather(*callers)


async def _keep_up(call: Callable[[str], Awaitable[bool]], stint: Stint, number: int, seen: Seen) -> None:
    dice = random.Random(number)
    now = -math.inf
    while now < stint.end:  # looks once more at the end: who never got a turn before it calls then
        now = time.monotonic()
        for _ in range(stint.take_due(min(now, stint.end))):
            admitted = await call(f"tenant:{dice.randrange(KEYS)}")
            seen.calls += 1
            seen.admitted += admitted  # in a line of its own: others count while this one waits
        await asyncio.sleep(stint.pause(now))


async def _beat(end: float, late: "array[float]") -> None:
    now = time.monotonic()
    while True:  # one beat at the least: a machine that stood still until the end did so for the tasks, too
        before = now
        await asyncio.sleep(_BEAT)
        now = time.monotonic()
        late.append(now - before - _BEAT)
        if now >= end:
            return
