"""A caller in the queue of a key: one thread, or one coroutine, which does not block its event loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from batchlimit.base.blocking import AMID, warn_in_loop
from batchlimit.base.forks import beginnings
from batchlimit.base.waiting import NO_WAIT
from batchlimit.base.waking import Event
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Retired, Step, Verdict, Wait, Waiter
from batchlimit.sync import key_entry
from batchlimit.sync.key_entry import AWAKE, KeyEntry


class WaitingThread:
    """A caller: its waiter, and what its thread does until there is a verdict.

    If anything is raised, even a KeyboardInterrupt, `leave` ends whatever was begun for the caller. A tentative caller
    is confirmed, or leaves, after its verdict.
    """

    __slots__ = ("_asked", "_event", "_since", "entry", "waited", "waiter")

    def __init__(
        self, entry: KeyEntry, cost: int, deadline: float, *, tentative: bool = False, priority: int = 1
    ) -> None:
        """`deadline`: until when (s, by the clock) it waits for tokens; NO_WAIT: it takes the first answer."""
        self.entry = entry
        self._event: Event | None = None  # from its first sleep on
        self.waiter = Waiter(cost, deadline, AWAKE, tentative=tentative, priority=priority)
        self._since = entry.clock() if deadline != NO_WAIT else NO_WAIT
        self.waited = self._asked = False  # whether it waited for anything; whether the store was just asked for it

    def wait(self) -> AdmissionResult | None:
        """Join the queue and wait for the verdict; raises what went wrong. None: the key entry has retired."""
        warn_in_loop()
        return self.result(self.entry.locked(self._join))

    def join_first(self) -> Step | None:
        """Join the queue if nobody is in it or asks the store, and return the first step; None: it did not join.

        To be followed by `result` or `leave`; before that, if the step is a Fetch, by `store_calls.fetch_together`.
        """

        def join() -> Step | None:
            state = self.entry.reservoir.state
            return None if state.is_retired or state.queue or state.in_flight is not None else self._join()

        step = self.entry.locked(join)
        self.waited = self._asked = isinstance(step, Fetch)
        return step

    def adopt(self, fetch: Fetch) -> bool:
        """Be the one whose request is in flight at a key that came into use just now; False: others were faster.

        Requires the lock. To be followed by a report on the request, and by `result` or `leave`.
        """
        self.waited = self._asked = True
        return self.entry.reservoir.adopt(self.waiter, fetch)

    def result(self, step: Step | None = None) -> AdmissionResult | None:
        """Wait for the verdict of a caller that is in the queue; as `wait`. The first `step` may be known."""
        try:
            verdict = self._verdict(step)
        finally:
            if self.waited and self._since != NO_WAIT:
                self.entry.reservoir.state.waits.add(self.entry.clock() - self._since)
        if self._event is not None:
            self._event.over()
        if isinstance(verdict, Fail):
            raise verdict.to_raise(self.entry.key)
        return None if isinstance(verdict, Retired) else self.told()

    def told(self) -> AdmissionResult:
        """Return the result of a caller that has its verdict."""
        assert isinstance(self.waiter.verdict, Admit | Refuse)
        return AdmissionResult(self.waiter.verdict, self.waited, self.waiter.asked > 0, self.entry.reservoir.forecast)

    def confirm(self) -> None:
        """Spend what a tentative caller was given."""
        self.entry.locked(lambda: self.entry.reservoir.admission.confirm(self.waiter))

    def leave(self) -> None:
        """Leave the queue; what the caller was given is for others."""
        if self._event is not None:
            self._event.over()
        self.entry.locked(lambda: self.entry.reservoir.leave(self.waiter, self.entry.clock()))

    def _verdict(self, step: Step | None) -> Verdict:
        """Do one step after the other, the first of which may be known, until there is a verdict."""
        while True:
            # A grant has served it, and it needs no step; but a server that was interrupted leaves it in the queue.
            asked, self._asked = self._asked, False
            if asked and isinstance(self.waiter.verdict, Admit) and self.entry.clock() < self.waiter.verdict.before:
                return self.waiter.verdict
            match step or self.entry.locked(self._look):
                case Admit(before) as verdict:
                    if self.entry.clock() < before:
                        return verdict
                case Refuse() | Fail() | Retired() as verdict:
                    return verdict
                case Wait(seconds):
                    self._sleep(seconds)
                case Fetch() as fetch:
                    self.waited = self._asked = True
                    key_entry.fetch(self.entry, fetch)
            step = None

    def _join(self) -> Step:
        """Requires the lock."""
        return self.entry.join(self.waiter) or self._look()

    def _look(self) -> Step:
        """Say what to do next. Requires the lock: whoever changes something later wakes a thread that is to sleep."""
        step = self.entry.reservoir.step(self.waiter, self.entry.clock())
        if isinstance(step, Wait) and self._event is None:
            self._event = self.waiter.event = self.entry.thread_event()
        return step

    def _sleep(self, seconds: float | None) -> None:
        if self.entry.sender.sends(self.entry.reservoir.state.in_flight):
            self.entry.watch(self.entry)  # its caller may have been interrupted, and the thread that ends it not begun
            raise RuntimeError(AMID)
        assert self._event is not None
        self.waited = True
        self._event.wait(seconds)


class WaitingCoroutine:
    """A coroutine that waits at a threaded limiter: in the same queue as the threads. See WaitingThread.

    It asks the store in a thread of its own, so its event loop is not blocked.
    """

    def __init__(self, entry: KeyEntry, cost: int, deadline: float, priority: int) -> None:
        self._entry, self._event = entry, entry.task_event()
        # It may be cancelled before it wakes.
        self._waiter = Waiter(cost, deadline, self._event, tentative=True, priority=priority)

    async def wait(self) -> AdmissionResult | None:
        """Join the queue and wait for the verdict; raises what went wrong. None: the key entry has retired."""
        reservoir, since = self._entry.reservoir, self._entry.clock()
        try:
            verdict = await self._verdict()
            self._entry.locked(lambda: reservoir.admission.confirm(self._waiter))
        except BaseException:
            self._entry.locked(lambda: reservoir.leave(self._waiter, self._entry.clock()))
            raise
        finally:
            if self._waiter.deadline != NO_WAIT:
                reservoir.state.waits.add(self._entry.clock() - since)
            self._event.over()
        return None if verdict is None else AdmissionResult(verdict, True, self._waiter.asked > 0, reservoir.forecast)

    async def _verdict(self) -> Admit | Refuse | None:
        step: Step | None = self._entry.locked(lambda: self._entry.join(self._waiter) or self._look())
        while True:
            match step or self._entry.locked(self._look):
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

    def _look(self) -> Step:
        """Requires the lock."""
        return self._entry.reservoir.step(self._waiter, self._entry.clock())

    async def _fetch(self, fetch: Fetch) -> None:
        """Ask in a thread, which reports whether or not the task still waits for it."""
        self._waiter.request = None  # the thread's own from here on: the caller may leave
        self._entry.sender.thread = 0
        try:
            asking = _threads.submit(key_entry.fetch, self._entry, fetch)
        except RuntimeError:  # the interpreter ends, or no thread can be had, and what was submitted would stay there
            _renew_threads()
            key_entry.lose(self._entry, fetch)
            raise
        await asyncio.shield(asyncio.wrap_future(asking))  # one that waits for a thread is not cancelled


def _renew_threads() -> None:
    global _threads  # noqa: PLW0603  after a fork the parent's threads are not here
    _threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="batchlimit-coroutine")


# Threads of our own: the loop's executor is everybody's, and may be shut down with our requests, which nobody reports.
_threads: ThreadPoolExecutor
_renew_threads()
beginnings.append(_renew_threads)
