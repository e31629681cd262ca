"""A caller in the queue of a key, or of several: a thread, or a coroutine, which does not block its event loop."""

import asyncio
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from batchlimit.base.blocking import AMID, warn_in_loop
from batchlimit.base.forks import beginnings
from batchlimit.base.key import Costs
from batchlimit.base.waiting import LONG_AGO, NO_WAIT
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.several import SeveralKeys
from batchlimit.reservoir.admission import AdmissionResult, result_of
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Retired, Step, Verdict, Wait, Waiter
from batchlimit.sync.key_entry import AWAKE, TOGETHER, KeyEntry, fetch_together


class WaitingThread:
    """A caller: its waiter, and what its thread does until there is a verdict.

    If anything is raised, even a KeyboardInterrupt, whatever was begun for the caller has ended. A tentative caller is
    confirmed, or leaves, after its verdict.
    """

    __slots__ = ("_asked", "_event", "_result", "_since", "entry", "waited", "waiter")

    def __init__(
        self, entry: KeyEntry, cost: int, deadline: float, *, tentative: bool = False, priority: int = 1
    ) -> None:
        """`deadline`: until when (s, by the clock) it waits for tokens; NO_WAIT: it takes the first answer."""
        self.entry = entry
        self._event: Any = None  # from its first sleep on
        self.waiter = Waiter(cost, deadline, AWAKE, tentative=tentative, priority=priority)
        self._since = entry.clock() if deadline != NO_WAIT else LONG_AGO
        self.waited = self._asked = False  # whether it waited for anything; whether the store was just asked for it

    def wait(self) -> AdmissionResult | None:
        """Join the queue and wait for the verdict; raises what went wrong. None: the key entry has retired."""
        warn_in_loop()
        return self._ended(self._join)

    def join_first(self) -> Step | None:
        """Join the queue if it is empty and quiet; return the first step, which its caller sends. None: not joined."""

        def join() -> Step | None:
            state = self.entry.reservoir.state
            return None if state.is_retired or state.queue or state.in_flight is not None else self._join()

        step = self.entry.locked(join)
        self.waited = self._asked = isinstance(step, Fetch)
        return step

    def adopt(self, fetch: Fetch) -> bool:
        """Be the one whose request is in flight at a new key; requires the lock. False: others were faster."""
        self.waited = self._asked = True
        return self.entry.reservoir.adopt(self.waiter, fetch)

    def result(self) -> AdmissionResult | None:
        """Wait for the verdict of a caller that is in the queue; as `wait`."""
        return self._ended(self._look)

    def _ended(self, look: Callable[[], Step]) -> AdmissionResult | None:
        try:
            for _ in self._settle(look):  # done by now, where a coroutine awaits it
                pass
        except StoreUnavailable:
            self.leave()
            raise
        except BaseException:  # a KeyboardInterrupt may come anywhere: what was begun for this caller is ended here
            self.entry.finish(self.leave)
            self.leave()
            raise
        return self._result

    def _settle(self, look: Callable[[], Step]) -> Iterator[Any]:
        """Go on until there is a result; raises what went wrong. The first `look` may join the queue."""
        try:
            verdict = yield from self._verdict(look)
        finally:
            if self.waited and self._since != LONG_AGO:
                self.entry.reservoir.state.waits.add(self.entry.clock() - self._since)
        if self._event is not None:
            self._event.over()
        if isinstance(verdict, Fail):
            raise verdict.to_raise(self.entry.key)
        self._result = None if isinstance(verdict, Retired) else self.told()

    told = result_of

    def confirm(self) -> None:
        """Spend what a tentative caller was given."""
        self.entry.locked(lambda: self.entry.reservoir.admission.confirm(self.waiter))

    def leave(self) -> None:
        """Leave the queue; what the caller was given is for others."""
        if self._event is not None:
            self._event.over()
        self.entry.locked(lambda: self.entry.reservoir.leave(self.waiter, self.entry.clock()))

    def _verdict(self, look: Callable[[], Step]) -> Generator[Any, None, Verdict]:
        """Do one step after the other until there is a verdict."""
        while True:
            # A grant has served it, and it needs no step; but a server that was interrupted leaves it in the queue.
            asked, self._asked = self._asked, False
            if asked and isinstance(self.waiter.verdict, Admit) and self.entry.clock() < self.waiter.verdict.before:
                return self.waiter.verdict
            match self.entry.locked(look):
                case Admit(before) as verdict:
                    if self.entry.clock() < before:
                        return verdict
                case Refuse() | Fail() | Retired() as verdict:
                    return verdict
                case Wait(seconds):
                    yield self._sleep(seconds)
                case Fetch() as fetch:
                    self.waited = self._asked = True
                    yield self._fetch(fetch)
            look = self._look

    def _join(self) -> Step:
        """Requires the lock."""
        return self.entry.join(self.waiter) or self._look()

    def _look(self) -> Step:
        """Say what to do next. Requires the lock: whoever changes something later wakes a thread that is to sleep."""
        step = self.entry.reservoir.step(self.waiter, self.entry.clock())
        if isinstance(step, Wait) and self._event is None:
            self._event = self.waiter.event = self.entry.thread_event()
        return step

    def _fetch(self, fetch: Fetch) -> Any:
        self.entry.fetch(fetch)

    def _sleep(self, seconds: float | None) -> Any:
        if self.entry.sends:
            self.entry.watch(self.entry)  # its caller may have been interrupted, and the thread that ends it not begun
            raise RuntimeError(AMID)
        self.waited = True
        return self._event.wait(seconds)


class WaitingCoroutine(WaitingThread):
    """A coroutine that waits at a threaded limiter: in the same queue as the threads, and by the same steps.

    It asks the store in a thread of its own, so its event loop is not blocked.
    """

    __slots__ = ()

    def __init__(self, entry: KeyEntry, cost: int, deadline: float) -> None:
        super().__init__(entry, cost, deadline, tentative=True)  # it may be cancelled before it wakes
        self._event = self.waiter.event = entry.task_event()
        self.waited = True

    async def awaited(self) -> AdmissionResult | None:
        """Join the queue and wait for the verdict, as `wait`; then spend what was given."""
        try:
            for step in self._settle(self._join):
                await step
            self.confirm()
        except BaseException:
            self.leave()
            raise
        return self._result

    async def _sleep(self, seconds: float | None) -> None:
        await self._event.wait(seconds)
        self._event.clear()  # before the look, so that whatever happens after it is not missed

    async def _fetch(self, fetch: Fetch) -> None:
        """Ask in a thread, which reports whether or not the task still waits for it."""
        self.waiter.request = None  # the thread's own from here on: the caller may leave
        self.entry.sender = fetch, 0
        try:
            asking = _threads.submit(self.entry.fetch, fetch)
        except RuntimeError:  # the interpreter ends, or no thread can be had, and what was submitted would stay there
            _renew_threads()
            self.entry.lose(fetch)
            raise
        await asyncio.shield(asyncio.wrap_future(asking))  # one that waits for a thread is not cancelled


class AcquireAll(SeveralKeys[WaitingThread]):
    """Several keys at once for a thread; those of which nothing is known are asked for in one round trip."""

    def __init__(self, costs: Costs, registry: Any, priority: int, came: Mapping[str, int]) -> None:
        super().__init__(costs, registry, registry.live_entry, priority, came)
        self._store, self._finish = registry.store, registry.finish

    def _begin(self, keys: Sequence[str], patience: float) -> None:
        """Ask in one round trip for those of several keys whose queues are empty.

        A caller that waits asks for one after the other. Else two callers may wait for each other in two queues.
        """
        if len(keys) == 1 or not self._store.is_pipelined or patience != NO_WAIT:
            return
        warn_in_loop()
        for first in range(0, len(keys), TOGETHER):
            some = keys[first : first + TOGETHER]
            if requests := [request for key in some if (request := self._join(key)) is not None]:
                fetch_together(self._store, requests)

    def _join(self, key: str) -> tuple[KeyEntry, Fetch] | None:
        caller = self._caller(key, NO_WAIT)
        if (step := caller.join_first()) is None:
            self._held.pop()
            return None
        self._places[caller.entry] = caller.waiter.number
        self._begun[key] = caller
        return (caller.entry, step) if isinstance(step, Fetch) else None

    def _hold(self, key: str, until: float) -> AdmissionResult:
        if (caller := self._begun.pop(key, None)) is not None:
            if (settled := caller.result()) is not None:
                return settled
            self._held.remove(caller)
        while True:
            caller = self._caller(key, until)
            if (settled := caller.wait()) is not None:
                self._places[caller.entry] = caller.waiter.number
                return settled
            self._held.pop()  # the key entry had just retired

    def _caller(self, key: str, until: float) -> WaitingThread:
        """Return a caller that joins the queue next. It is held before: an interrupt may come between any two lines."""
        caller = WaitingThread(self._find(key), self._costs[key], until, tentative=True, priority=self._priority)
        caller.waiter.number = self._number(caller.entry, key)
        self._held.append(caller)
        return caller

    def _leave(self) -> None:
        self._begun.clear()
        for caller in self._held:
            caller.leave()
        self._held = []


def _renew_threads() -> None:
    global _threads  # noqa: PLW0603  after a fork the parent's threads are not here
    _threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="batchlimit-coroutine")


# Threads of our own: the loop's executor is everybody's, and may be shut down with our requests, which nobody reports.
_threads: ThreadPoolExecutor
_renew_threads()
beginnings.append(_renew_threads)
