"""A coroutine that waits at a threaded limiter: in the same queue as the threads, without blocking its event loop."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from batchlimit.reservoir.admission_result import AdmissionResult
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Retired, Step, Wait, Waiter
from batchlimit.sync import store_calls
from batchlimit.sync.key_entry import KeyEntry


class WaitingCoroutine:
    """A caller: its waiter, and what its task does until there is a verdict; see WaitingThread."""

    def __init__(self, entry: KeyEntry, cost: int, deadline: float) -> None:
        self._entry, self._event = entry, entry.task_event()
        self._waiter = Waiter(cost, deadline, self._event, tentative=True)  # it may be cancelled before it wakes

    def __repr__(self) -> str:
        return f"<WaitingCoroutine at {self._entry!r}: {self._waiter}>"

    async def wait(self) -> AdmissionResult | None:
        """Join the queue and wait for the verdict; raises what went wrong. None: the key entry has retired."""
        reservoir = self._entry.reservoir
        try:
            verdict = await self._verdict()
            self._entry.locked(lambda: reservoir.admission.confirm(self._waiter))
        except BaseException:
            self._entry.locked(lambda: reservoir.leave(self._waiter, self._entry.clock()))
            raise
        return None if verdict is None else AdmissionResult(verdict, True, self._waiter.asked > 0, reservoir)

    async def _verdict(self) -> Admit | Refuse | None:
        step = self._entry.enter(self._waiter)
        while True:
            match step or self._step():
                case Admit(before) as verdict:
                    if self._entry.clock() < before:
                        return verdict
                case Refuse() as verdict:
                    return verdict
                case Fail() as verdict:
                    raise verdict.to_raise(self._entry.key)
                case Retired():
                    return None
                case Wait(seconds):
                    await self._event.wait(seconds)
                case Fetch() as fetch:
                    await self._fetch(fetch)
            self._event.clear()  # before the look, so that whatever happens after it is not missed
            step = None

    def _step(self) -> Step:
        return self._entry.locked(lambda: self._entry.reservoir.step(self._waiter, self._entry.clock()))

    async def _fetch(self, fetch: Fetch) -> None:
        """Ask in a thread, which reports whether or not the task still waits for it."""
        self._waiter.request = None  # the thread's own from here on: the caller may leave
        self._entry.sender.hand_over()
        try:
            asking = _threads.submit(store_calls.fetch, self._entry, fetch)
        except RuntimeError:  # the interpreter ends, or no thread can be had, and what was submitted would stay there
            _renew_threads()
            store_calls.lose(self._entry, fetch)
            raise
        await asyncio.shield(asyncio.wrap_future(asking))  # one that waits for a thread is not cancelled


def _new_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=16, thread_name_prefix="batchlimit-coroutine")


def _renew_threads() -> None:
    global _threads  # noqa: PLW0603  after a fork the parent's threads are not here
    _threads = _new_threads()


# Threads of our own: the loop's executor is everybody's, and may be shut down with our requests, which nobody reports.
_threads = _new_threads()
os.register_at_fork(after_in_child=_renew_threads)
