"""A coroutine at a threaded limiter: it stands in the same line as the threads, and blocks neither its loop nor one."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from batchlimit.reservoir.admission_result import AdmissionResult
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Retired, Wait, Waiter
from batchlimit.sync.key_entry import HEARTBEAT, KeyEntry
from batchlimit.waiting import NO_WAIT


class TaskEvent:
    """Wakes a task, from any thread."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Ring; where the loop was closed meanwhile, nobody hears."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Be silent until it rings anew."""
        self._event.clear()

    async def wait(self, seconds: float) -> None:
        """Wait until it rings, so many seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


async def settle(entry: KeyEntry, cost: int, deadline: float, clock: Callable[[], float]) -> AdmissionResult | None:
    """Do for a task what `KeyEntry.settle` does for a thread; a thread asks the store, which is bounded."""
    if entry.reservoir.is_retired:
        return None
    if (before := entry.take(cost)) != NO_WAIT:
        return AdmissionResult(Admit(before), waited=False, asked=False, reservoir=entry.reservoir)
    bell = TaskEvent()
    waiter = Waiter(cost, deadline, bell, tentative=True)  # it may be cancelled before it wakes
    try:
        verdict = await _walk(entry, waiter, bell, clock) if entry.enter(waiter) else None
        entry.confirm(waiter)
        return None if verdict is None else AdmissionResult(verdict, True, waiter.asked > 0, entry.reservoir)
    except BaseException:
        entry.leave(waiter)
        raise


async def _walk(entry: KeyEntry, waiter: Waiter, bell: TaskEvent, clock: Callable[[], float]) -> Admit | Refuse | None:
    while True:
        bell.clear()  # before the look, so that whatever happens after it is not missed
        match entry.step(waiter):
            case Admit(before) as verdict:
                if clock() < before:
                    return verdict
            case Refuse() as verdict:
                return verdict
            case Fail() as verdict:
                raise verdict.to_raise(entry.key)
            case Retired():
                return None
            case Wait(seconds):
                await bell.wait(HEARTBEAT if seconds is None else min(seconds, HEARTBEAT))
            case Fetch() as fetch:
                await _fetch(entry, waiter, fetch)


async def _fetch(entry: KeyEntry, waiter: Waiter, fetch: Fetch) -> None:
    """Ask in a thread, which reports back whether or not anybody still waits for it."""
    waiter.request = None  # the thread's own from here on: the caller may leave
    entry.hand_over()
    try:
        asking = _threads.submit(entry.fetch, fetch)
    except RuntimeError:  # the interpreter ends, or no thread can be had, and what was submitted would stay there
        _renew_threads()
        entry.lose(fetch)
        raise
    await asyncio.shield(asyncio.wrap_future(asking))  # one that waits for a free thread must not be cancelled either


def _new_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=16, thread_name_prefix="batchlimit-guest")


def _renew_threads() -> None:
    global _threads  # noqa: PLW0603  after a fork the parent's threads are not here
    _threads = _new_threads()


# Our own, for the loop's are everybody's, and may be shut down with our asks among them: then nobody reports back.
_threads = _new_threads()
os.register_at_fork(after_in_child=_renew_threads)
