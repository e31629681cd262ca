"""Callers of a concurrency limiter whose time and whose interruptions a test decides: threads, and tasks."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter, Partitions, Queue
from batchlimit.concurrency.laws import Settable
from tests.aio.loop import VirtualLoop
from tests.sync.stage import DEADLINE, start

Make = Callable[..., Any]


class Interrupted(BaseException):
    """What a thread gets out of a wait: a KeyboardInterrupt, or an error of a signal handler."""


class Caller:
    """One call: it is "waiting", "held", or over for a reason."""

    def __init__(self) -> None:
        self.state = "waiting"
        self.permit: Any = None

    def failed(self, error: BaseException) -> None:
        self.state = error.reason if isinstance(error, ConcurrencyLimited) else type(error).__name__


class Tasks:
    """Tasks of one loop in virtual time."""

    def __init__(self, limit: int, partitions: Partitions | None, queue: Queue, make: Make | None = None) -> None:
        """`make` makes a limiter of another kind."""
        self.law = Settable(limit)
        self._loop = VirtualLoop()
        make = make or partial(AsyncConcurrencyLimiter, self.law, partitions=partitions, queue=queue)
        self.limiter: Any = make(clock=self._now)
        self._tasks: dict[Caller, asyncio.Task[None]] = {}

    def call(self, partition: str, timeout: float | None) -> Caller:
        caller = Caller()
        self._tasks[caller] = self._loop.create_task(self._acquire(caller, partition, timeout))
        return caller

    async def _acquire(self, caller: Caller, partition: str, timeout: float | None) -> None:
        try:
            caller.permit = await self.limiter.acquire(partition, timeout=timeout)
            caller.state = "held"
        except BaseException as error:  # noqa: BLE001  the test looks at it
            caller.failed(error)

    def hold(self) -> None:
        pass

    def cancel(self, caller: Caller) -> None:
        self._tasks[caller].cancel()

    def pass_by(self, seconds: float) -> None:
        self._loop.leap(seconds)

    def shut(self) -> None:
        self._loop.run_until_complete(self.limiter.close())

    def settle(self) -> None:
        idle = 0
        while idle < 3:  # what another thread would have done, the selector learns of one round later
            self._loop.stop()
            self._loop.run_forever()
            idle = 0 if self._loop._ready else idle + 1  # type: ignore[attr-defined]

    def close(self) -> None:
        self._loop.run_until_complete(asyncio.wait([*self._tasks.values(), self._loop.create_task(asyncio.sleep(0))]))
        self._loop.close()

    def _now(self) -> int:
        return round(self._loop.time() * 1e9)


class _Turn:
    """A thread's turn in the time of a test."""

    def __init__(self, threads: "Threads") -> None:
        self._threads = threads
        self._caller: Caller = threads.current.caller
        threads.turns[self._caller] = self
        self._is_set = self.interrupted = False
        self._until = float("inf")

    def wake(self) -> None:
        with self._threads.changed:
            self._is_set = True
            self._threads.changed.notify_all()

    @property
    def is_due(self) -> bool:
        return self._is_set or self.interrupted or self._threads.now >= self._until

    def wait(self, seconds: float) -> bool:
        threads = self._threads
        with threads.changed:
            self._until = threads.now + seconds
            threads.blocked.add(self._caller)
            threads.changed.notify_all()
            # While the scene is held, what several causes do to one wait happens all at once.
            assert threads.changed.wait_for(lambda: self.is_due and not threads.held, DEADLINE)
            threads.blocked.discard(self._caller)
            if self.interrupted:
                raise Interrupted
            return self._is_set and threads.now < self._until


class Threads:
    """Threads whose waits are a test's to end."""

    def __init__(self, limit: int, partitions: Partitions | None, queue: Queue, make: Make | None = None) -> None:
        """`make` makes a limiter of another kind."""
        self.law = Settable(limit)
        self.now = 1000.0
        make = make or partial(ConcurrencyLimiter, self.law, partitions=partitions, queue=queue)
        self.limiter: Any = make(clock=self._now)
        # Guards all of these; notified when one of them changes.
        self.changed = threading.Condition()
        self.blocked: set[Caller] = set()
        self.turns: dict[Caller, _Turn] = {}
        self.held = False
        self.current = threading.local()
        self._ends: dict[Caller, Any] = {}
        self._patch = mock.patch("batchlimit.concurrency.permit.ThreadWakeup", partial(_Turn, self))
        self._patch.start()

    def call(self, partition: str, timeout: float | None) -> Caller:
        caller = Caller()
        self._ends[caller] = start(lambda: self._acquire(caller, partition, timeout))
        self.settle()  # else nobody knows who came first
        return caller

    def _acquire(self, caller: Caller, partition: str, timeout: float | None) -> None:
        self.current.caller = caller
        try:
            caller.permit = self.limiter.acquire(partition, timeout=timeout)  # nothing but the caller has it
            caller.state = "held"
        except BaseException as error:  # noqa: BLE001  the test looks at it
            caller.failed(error)
        with self.changed:
            self.changed.notify_all()

    def hold(self) -> None:
        with self.changed:
            self.held = True

    def cancel(self, caller: Caller) -> None:
        with self.changed:
            self.turns[caller].interrupted = True

    def pass_by(self, seconds: float) -> None:
        with self.changed:
            self.now += seconds

    def shut(self) -> None:
        self.limiter.close()

    def settle(self) -> None:
        with self.changed:
            self.held = False
            self.changed.notify_all()
            assert self.changed.wait_for(self._is_settled, DEADLINE)

    def _is_settled(self) -> bool:
        return all(
            caller.state != "waiting" or (caller in self.blocked and not self.turns[caller].is_due)
            for caller in self._ends
        )

    def close(self) -> None:
        for end in self._ends.values():
            end.result(DEADLINE)
        self._patch.stop()

    def _now(self) -> int:
        return round(self.now * 1e9)


Callers = Tasks | Threads
"""Nothing has happened for sure until `settle` returns; what happens between `hold` and that happens at once."""
