"""Time that stands still until somebody moves it. Threads and tasks that wait move it to when their wait ends."""

import asyncio
import math
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from batchlimit.base.redaction import shown
from batchlimit.base.waking import TaskEvent, ThreadWakeup
from batchlimit.concurrency.waits import TaskWakeup
from batchlimit.quota.grammar import read

_BEGINS = 1e8
"""Seconds. No machine has run for as long: an instant of the real clock that leaks in here lies in the past."""
_ROUNDING = 2e-6
"""Seconds that a move takes on top: a bucket counts whole microseconds, and rounds up when it says when to return."""
TURNS = 10
"""So many rounds of a loop all tasks that could go on have had their turn, before a task that waits moves the clock."""
LOOK = 0.001
"""Seconds of real time after which a task looks again that waits for another one, or for a clock that is held."""


class VirtualTime:
    """A clock, and what waits by it. Any thread may read it, move it, or wait.

    Threads that wait move the clock to the earliest instant that one of them waits for. They do so when no thread that
    was woken is still about to act: so nobody is passed over, however slow the machine is. While the clock is `held` it
    moves by `move` alone.
    """

    def __init__(self) -> None:
        self._now = _BEGINS
        self.held = False
        self.world: Any = None  # what lives in this time: it has to `leave` before the clock is set, and `arrive` after
        self.changed = threading.Condition(threading.RLock())  # held to move, and notified of every move and wake-up
        self.asleep: set[ThreadEvent] = set()  # what threads wait on
        self.acting: set[ThreadEvent] = set()  # of threads that were woken, and have no verdict yet
        self.tasks: dict[LoopEvent, float] = {}  # until when they wait; -inf: they are about to act
        self.steps = 0  # how often a task began to wait, or went on
        # What a thread and a task are to wait for at a gate of concurrency limiters.
        self.thread_wakeup, self.task_wakeup = partial(VirtualThreadWakeup, self), partial(VirtualTaskWakeup, self)

    def __call__(self, *_: object) -> float:
        return self._now

    @property
    def elapsed(self) -> float:
        return self._now - _BEGINS

    def nanoseconds(self) -> int:
        """Return `elapsed`, as gates of concurrency limiters count."""
        return round(self.elapsed * 1e9)

    def advance(self, length: float | str | timedelta) -> None:
        """Let so much time pass: seconds, text such as "1m" or a timedelta; else ValueError or TypeError."""
        if isinstance(length, timedelta):
            length = length.total_seconds()
        if isinstance(length, str):
            try:
                (length,) = read(f"1/{length}", lambda _amount, seconds, _burst: seconds)
            except ValueError as error:
                raise ValueError(f'a length of time is like 60, "60s", "1m" or "1d", not {shown(length)}') from error
        if isinstance(length, bool) or not isinstance(length, int | float):
            raise TypeError(f'a length of time is like 60, "60s", "1m", "1d" or a timedelta, not {shown(length)}')
        if not 0.0 <= length < math.inf:
            raise ValueError(f"a length of time is at least 0 seconds, and finite, not {shown(length)}")
        self.move(self._now + length + _ROUNDING)

    def move(self, instant: float) -> None:
        """Set the clock to this instant, unless it is later already."""
        with self.changed:
            if instant > self._now and self.world is None:
                self._now = instant
            elif instant > self._now:
                self.world.leave(instant)
                self._now = instant
                self.world.arrive()
            self.changed.notify_all()


class ThreadEvent(ThreadWakeup):
    """What a thread waits on in virtual time."""

    __slots__ = ("_time", "due", "is_set")

    def __init__(self, time: VirtualTime) -> None:
        self._time, self.due, self.is_set = time, math.inf, False

    def set(self) -> None:
        with self._time.changed:
            self.is_set = True
            self._time.changed.notify_all()

    def wait(self, seconds: float | None) -> bool:
        """Return whether it was set, after so many seconds of virtual time at most (None: no limit)."""
        time = self._time
        with time.changed:
            time.acting.discard(self)
            self.due = math.inf if seconds is None else time() + seconds
            time.asleep.add(self)
            time.changed.notify_all()  # another thread may be the next to move the clock now
            try:
                while not self.is_set and time() < self.due:
                    is_next = not time.acting and self.due == min(each.due for each in time.asleep) < math.inf
                    if is_next and not time.held and not any(each.is_set for each in time.asleep):
                        time.move(self.due)
                    else:
                        time.changed.wait()
            finally:
                time.asleep.discard(self)
                time.acting.add(self)
            was_set, self.is_set = self.is_set, False
            return was_set

    def over(self) -> None:
        """Nobody waits any more: the thread has its verdict."""
        with self._time.changed:
            self._time.acting.discard(self)
            self._time.changed.notify_all()


class VirtualThreadWakeup(ThreadEvent):
    """What a thread waits for at a concurrency limiter, in virtual time. One that has waited acts in it no more."""

    __slots__ = ()
    wake = ThreadEvent.set

    def wait(self, seconds: float | None) -> bool:
        """Return whether it was woken, after so many seconds of virtual time at most."""
        was_woken = super().wait((seconds or 0.0) + _ROUNDING)
        self.over()
        return was_woken


class LoopEvent(TaskEvent):
    """What a task waits on in virtual time that uses the limiter of threads."""

    __slots__ = ("_time",)

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self._time = time
        time.tasks[self] = -math.inf
        time.steps += 1

    def set(self) -> None:
        self._time.steps += 1
        super().set()

    async def wait(self, seconds: float | None) -> None:
        """Wait until it is set, so many seconds of virtual time at most."""
        due = math.inf if seconds is None else self._time() + seconds
        self._time.tasks[self] = due
        try:
            while not self._event.is_set() and self._time() < due:
                steps = self._time.steps
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                if self._event.is_set() or steps != self._time.steps:
                    continue
                if self._time.held or due == math.inf or due > min(self._time.tasks.values()):
                    await asyncio.sleep(LOOK)
                else:
                    self._time.move(due)
        finally:
            self._time.tasks[self] = -math.inf

    def over(self) -> None:
        self._time.tasks.pop(self, None)
        self._time.steps += 1

    @property
    def is_set(self) -> bool:
        return self._event.is_set()


class VirtualTaskWakeup(TaskWakeup):
    """What a task waits for at a concurrency limiter, in virtual time."""

    __slots__ = ("_event", "_time")

    def __init__(self, time: VirtualTime) -> None:
        self._time, self._event = time, LoopEvent(time)

    def wake(self) -> None:
        self._event.set()

    async def wait(
        self, seconds: float, pause: Callable[[], float] | None = None, look: Callable[[], object] | None = None
    ) -> None:
        """Return when woken, or after so many seconds of virtual time; meanwhile `look` after each pause."""
        until = self._time() + seconds
        try:
            while not self._event.is_set and (left := until - self._time()) > 0.0:
                wait = left if pause is None else min(left, pause())
                await self._event.wait(wait + _ROUNDING)
                if look is not None and not self._event.is_set:
                    look()
        finally:
            self._event.over()
