"""An event loop in which time stands still: whatever can go on does, and then the world decides what happens next."""

import asyncio
import contextlib
import math
import random
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any

from batchlimit.aio import key_entry
from tests.model.state import Walk

_SECOND = 1_000_000
_MOST = 10_000
"""Turns after which something goes on for ever."""


class Turns(asyncio.AbstractEventLoop):
    """Runs callbacks in their order until none is left; timers ring when the world has moved its clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._wrong: BaseException | None = None

    def time(self) -> float:
        return self._clock()

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        self._ready.append(handle := asyncio.Handle(callback, args, self, context))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        self._timers.append(handle := asyncio.TimerHandle(when, callback, args, self, context))
        handle._scheduled = True  # type: ignore[attr-defined]  # so that it tells when it is cancelled
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if handle in self._timers:
            self._timers.remove(handle)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, work: Any, *, name: Any = None, context: Context | None = None) -> "asyncio.Task[Any]":
        self._tasks.append(task := asyncio.Task(work, loop=self, name=name, context=context))
        return task

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what a callback raised, to raise it where the world lets it run."""
        if "handle" in context:
            self._wrong = self._wrong or context.get("exception")

    # What the world does

    @property
    def due(self) -> int:
        """When (us) the next timer rings, or later than anything."""
        return min([math.ceil(each._when * _SECOND - 1e-3) for each in self._timers], default=sys.maxsize)  # type: ignore[attr-defined]

    def run(self) -> None:
        """Ring the timers that are due, also those that are set meanwhile, and let all go on that can."""
        hooks, dice = sys.get_asyncgen_hooks(), vars(key_entry)
        sys.set_asyncgen_hooks(finalizer=lambda generator: None)  # a loop that is dropped ends nothing
        dice["uniform"] = lambda least, most: (least + most) / 2
        self._ready += self._rung(self.time() + 1e-9)
        before = events._get_running_loop()  # one world may be dropped while another goes on
        events._set_running_loop(self)
        try:
            for _ in range(_MOST):
                if self._wrong is not None:
                    raise self._wrong
                self._ready += [] if self._ready else self._rung(self.time())
                if not self._ready:
                    return
                if not (handle := self._ready.popleft())._cancelled:
                    handle._run()
            raise RuntimeError("the loop does not come to rest")
        finally:
            events._set_running_loop(before)
            dice["uniform"] = random.uniform
            sys.set_asyncgen_hooks(*hooks)

    def _rung(self, now: float) -> list[asyncio.TimerHandle]:
        """Take the timers that are due by then, the earliest first."""
        due = sorted([each for each in self._timers if each._when <= now], key=lambda each: each._when)  # type: ignore[attr-defined]
        for each in due:
            self._timers.remove(each)
            each._scheduled = False  # type: ignore[attr-defined]
        return due

    def end(self) -> None:
        """Let no task go on: one that is dropped while it waits would complain."""
        self._timers.clear()
        self._ready.clear()
        self._wrong = None
        while tasks := self.under_way():
            for each in tasks:
                each.cancel()
            with contextlib.suppress(Exception):
                self.run()
            self._timers.clear()

    def under_way(self) -> list["asyncio.Task[Any]"]:
        """Tasks that have not ended, in the order in which they began."""
        self._tasks = [each for each in self._tasks if not each.done()]
        return self._tasks


def frames(work: Any) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Where a coroutine stands, and what it awaits: names, instructions and variables, the outermost first."""
    while work is not None:
        work = getattr(work, "_work", work)  # of a Pending
        if (frame := getattr(work, "cr_frame", None)) is None:
            return
        yield frame.f_code.co_qualname if sys.version_info >= (3, 11) else "", frame.f_lasti, frame.f_locals
        work = work.cr_await


def tell(walk: Walk, task: "asyncio.Task[Any]") -> None:
    """List the values by which a task goes on."""
    for name, instruction, variables in frames(task.get_coro()):
        walk.values += (name, instruction)
        for each, value in variables.items():
            if each != "began":  # by the clock of the machine: how long something took
                walk.values.append(each)
                walk.see(value)
