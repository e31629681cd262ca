"""What a limiter has under way on its event loop: a timer, and tasks of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.timer import Due, Timer
from batchlimit.aio.turns import Turns

T = TypeVar("T")


class Home:
    """Where the key entries of a limiter run: its event loop, one timer, and tasks that no caller cancels.

    Until `move_to` was called it is on no loop.
    """

    def __init__(self, store: GuardedStore, clock: Callable[[], float], drop: Callable[[Any], None]) -> None:
        """`drop` lets go of a key entry that has retired."""
        self.store, self.clock, self.drop = store, clock, drop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: Timer | None = None
        self._steps: Turns | None = None
        self._wakes: Turns | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    def __repr__(self) -> str:
        return f"<Home on {self._loop!r}: {len(self._tasks)} tasks, {self._timer!r}>"

    def move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run on this loop from now on; whatever was under way on another one is forgotten."""
        self._loop, self._timer = loop, Timer(loop, self.clock)
        self._steps, self._wakes = Turns(loop), Turns(loop)
        self._tasks.clear()

    def watch(self, thing: Due) -> None:
        """See Timer.watch. A closed loop watches nothing: the next call binds the limiter to another one."""
        if self._timer is not None and self._loop is not None and not self._loop.is_closed():
            self._timer.watch(thing)

    def step(self, work: Callable[[], object]) -> None:
        """Do what one waiter is to do next, in this turn of the loop or in one soon.

        It may send a request, so it is not behind the tasks that are to wake.
        """
        assert self._steps is not None
        self._steps.do(work)

    def wake(self, task: "asyncio.Future[None]") -> None:
        """Let a task go on, in this turn of the loop or in one soon, behind those that were to go on before."""
        assert self._wakes is not None
        self._wakes.do(partial(_end, task))

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run this in a task of the limiter's own, which no caller cancels, and which has no caller's context."""
        assert self._loop is not None
        try:
            task = self._loop.create_task(work, name="batchlimit", context=Context())
        except BaseException:  # a task factory of the user's own
            work.close()
            raise
        self.follow(task)
        return task

    def follow(self, work: "asyncio.Future[Any]") -> None:
        """Know of work that is under way, until it is done: a loop itself keeps no task alive."""
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    async def finish(self, closing: "asyncio.Task[None] | None") -> None:
        """Wait until nothing is under way that could bring tokens; `closing` and the task that calls bring none."""
        mine = (asyncio.current_task(), closing)
        while under_way := [task for task in self._tasks if task not in mine]:
            await asyncio.wait(under_way)
            await asyncio.sleep(0)  # their callbacks run first

    async def cancel(self) -> None:
        """Leave nothing under way to a loop that ends: the store had its time."""
        left = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def stop(self) -> None:
        """Have the timer never ring again."""
        if self._timer is not None:
            self._timer.stop()


def _end(task: "asyncio.Future[None]") -> None:
    if not task.done():  # else it was cancelled
        task.set_result(None)
