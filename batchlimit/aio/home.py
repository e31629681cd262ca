"""What a limiter has on its event loop: a timer, tasks, things done a few at a time, and a file that it follows."""

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol, TypeVar

from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.base.waking import AT_ONCE, HEARTBEAT, RoundRobin
from batchlimit.events import log_event, named
from batchlimit.keyspace.timer_heap import DueEntry, TimerHeap

_PATIENCE = 5.0
"""How long (s) whoever reads a file waits for a loop that is busy."""


class Due(DueEntry, Protocol):
    """Something to come to at the instant `due`."""

    def ring(self) -> None:
        """Do what is due; nobody else has to."""


T = TypeVar("T")


class Home:
    """Where the key entries of a limiter run: its event loop, one timer, and tasks that no caller cancels.

    The timer comes to each thing that is watched when it is due. In one turn of the loop it rings for a few of them:
    the others are due still, so it is set to now.

    Until `move_to` was called it is on no loop. What waiters do next is one of `steps`; `wakes` lets tasks go on: in
    this turn of the loop, or in one soon.
    """

    steps: RoundRobin
    wakes: RoundRobin
    _plans: TimerHeap[Due]
    _timer: asyncio.TimerHandle | None
    _rings_at: float

    def __init__(self, store: GuardedStore, clock: Callable[[], float], drop: Callable[[Any], None]) -> None:
        """`drop` lets go of a key entry that has retired."""
        self.store, self.clock, self.drop = store, clock, drop
        self._loop: Any = None
        self._tasks: set[asyncio.Future[Any]] = set()

    def move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run on this loop from now on; whatever was under way on another one is forgotten."""
        self._loop, self._plans, self._timer, self._rings_at = loop, TimerHeap(), None, math.inf
        self.steps, self.wakes = RoundRobin(loop), RoundRobin(loop)
        self._tasks.clear()

    def watch(self, thing: Due) -> None:
        """Come to this thing at its `due`. A closed loop watches nothing: the next call binds to another one."""
        if self._loop is None or self._loop.is_closed():
            return
        self._plans.add(thing)
        if thing.due < self._rings_at or self._rings_at < self.clock() - HEARTBEAT:  # a signal handler made it forget
            self._set_timer(self._plans.first_at)

    def stop(self) -> None:
        """Have the timer never ring again."""
        self._plans.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = at
        # In a context of its own: what a request has set in the one it runs in is not ours.
        self._timer = self._loop.call_later(max(0.0, at - self.clock()), self._ring, context=Context())

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        now = self.clock()
        for _ in range(AT_ONCE):
            if (thing := self._plans.take(now)) is None:
                break
            thing.due = math.inf
            try:
                thing.ring()
            except Exception as error:  # noqa: BLE001  a sizer of the user's own
                who = named(key) if (key := getattr(thing, "key", "")) else thing
                message = "looking after %s failed; the others are looked after"
                log_event("key.unattended", message, who, error=error)
        if self._plans.first_at < self._rings_at:
            self._set_timer(self._plans.first_at)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run this in a task of the limiter's own, which no caller cancels, and which has no caller's context."""
        try:
            task: asyncio.Task[T] = self._loop.create_task(work, name="batchlimit", context=Context())
        except BaseException:  # a task factory of the user's own
            work.close()
            raise
        self._tasks.add(task)  # a loop itself keeps no task alive
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, closing: "asyncio.Task[None] | None") -> None:
        """Wait until nothing is under way that could bring tokens; `closing` and the task that calls bring none."""
        mine = (asyncio.current_task(), closing)
        while under_way := [task for task in (*self._tasks, *self.store.sent) if task not in mine]:
            await asyncio.wait(under_way)
            await asyncio.sleep(0)  # their callbacks run first

    async def cancel(self) -> None:
        """Leave nothing under way to a loop that ends: the store had its time."""
        left = [task for task in (*self._tasks, *self.store.sent) if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class FileFollower:
    """Has `apply` go by what a file says: on the loop, or in the thread that tells of it while there is no loop."""

    __slots__ = ("__weakref__", "_apply", "_is_behind", "_lock", "_loop")

    def __init__(self, apply: Callable[[], None]) -> None:
        self._apply = apply
        self._is_behind = False  # the file says something else
        self.after_fork()

    def after_fork(self) -> None:
        """In the child: there is no loop yet."""
        self._lock = threading.Lock()  # held to bind to a loop, and to apply a file where there is none
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Apply what the file says on this running loop, now and from now on."""
        with self._lock:
            self._loop = loop
        self.catch_up()

    def obey(self, said: object) -> None:
        """Apply what the file says now; the thread that calls waits until that is so, a while at most."""
        self._is_behind = True
        with self._lock:
            loop = self._loop
            if loop is None:
                self.catch_up()
                return
        if asyncio._get_running_loop() is loop:
            self.catch_up()
            return
        done = threading.Event()
        with contextlib.suppress(RuntimeError):  # the loop was closed: the next one will do it
            loop.call_soon_threadsafe(self.catch_up, done)
            done.wait(_PATIENCE)

    def catch_up(self, done: threading.Event | None = None) -> None:
        """Apply what was not applied yet; requires to be on the loop, if there is one."""
        if self._is_behind:
            try:
                self._is_behind = False  # first: the file may change meanwhile
                self._apply()
            except BaseException:
                self._is_behind = True
                raise
        if done is not None:
            done.set()
