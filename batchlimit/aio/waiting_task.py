"""How tasks wait for tokens: in the queue of a key, or of several, or for a refill that serves many of them."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from batchlimit.base.key import Costs
from batchlimit.base.redaction import shown
from batchlimit.base.waiting import NO_WAIT
from batchlimit.keyspace.several import SeveralKeys
from batchlimit.reservoir.admission import AdmissionResult, result_of
from batchlimit.reservoir.waiter import NOBODY, Admit, Fail, Refuse, Retired, Waiter
from batchlimit.stores.guard import MANY

if TYPE_CHECKING:
    from batchlimit.aio.key_entry import KeyEntry


class WaitingTask:
    """A task in the queue, or about to join it. The key entry decides for it: it wakes for its verdict alone."""

    __slots__ = ("_error", "_woken", "due", "entry", "has_left", "waited", "waiter")

    def __init__(
        self, entry: "KeyEntry", cost: int, deadline: float, *, prompt: bool = False, priority: int = 1
    ) -> None:
        """See Waiter for `prompt` and `priority`."""
        # It may be cancelled before it wakes.
        self.waiter = Waiter(cost, deadline, self, tentative=True, prompt=prompt, priority=priority)
        self.waited = self.has_left = False
        self.due = math.inf  # when its key entry looks after it, if nothing happens before
        self.entry = entry
        self._woken: asyncio.Future[None] | None = None
        self._error: Exception | None = None

    def __repr__(self) -> str:
        return f"<WaitingTask at {shown(self.entry.key)}: {self.waiter}>"

    def set(self) -> None:
        """Hear that there is something to learn."""
        if self.waiter.verdict is not None:
            self.wake()
        elif not self.has_left:
            self.entry.home.steps.do(self._look)  # it may send a request, so it is not behind the tasks that wake

    def _look(self) -> None:
        if self.waiter.verdict is None and not self.has_left:
            self.entry.step(self)

    def ring(self) -> None:
        """Hear that the time has come."""
        self.set()

    def fail(self, error: Exception) -> None:
        """Have the task raise this, and leave."""
        self.has_left = True
        self._error = error
        self.wake()

    def wake(self) -> None:
        """Have the task look for itself."""
        self.due = math.inf
        if (woken := self._woken) is not None:
            self._woken = None  # it wakes once, however often this is called
            self.entry.home.wakes.do(partial(_end, woken))  # behind those that were to go on before

    def part(self) -> None:
        """Let the waiter go: while each has the other, only the garbage collector frees them."""
        self.waiter.event = NOBODY

    def confirm(self) -> None:
        """Spend what the caller was given, and `part`."""
        self.waiter.event = NOBODY
        if self.entry.reservoir.admission.confirm(self.waiter):
            self.entry.changed()

    told = result_of

    async def result(self) -> AdmissionResult | None:
        """Wait for the verdict, and spend what was given; None: the key entry has retired."""
        try:
            verdict = await self.verdict(self.entry.home.clock)
        except BaseException:
            self.entry.leave(self)
            raise
        if isinstance(verdict, Retired):
            self.part()
            return None
        self.confirm()
        return self.told()

    async def verdict(self, clock: Callable[[], float]) -> Admit | Refuse | Retired:
        """Wait until there is one; raises what went wrong. The only place where a caller can be cancelled."""
        while True:
            if self._error is not None:
                raise self._error
            match self.waiter.verdict:
                case Admit(before) as verdict if clock() < before:
                    return verdict
                case Admit():
                    # Too late: the task goes back to its place in the queue, and its tokens are lost. From the end
                    # of their lease on the bucket counts them as spent, and fills up again. If they were spent now, a
                    # process that was stopped with a thousand served tasks would admit those on top of a whole burst.
                    self.entry.step(self)
                case Refuse() | Retired() as verdict:
                    return verdict
                case Fail() as verdict:
                    raise verdict.to_raise(self.entry.key)
                case None:
                    self.waited, began = True, clock()
                    woken = self._woken = asyncio.get_running_loop().create_future()
                    try:
                        await woken
                    finally:
                        if self.waiter.deadline != NO_WAIT:
                            self.entry.reservoir.state.waits.add(clock() - began)


def _end(woken: "asyncio.Future[None]") -> None:
    if not woken.done():  # else its task was cancelled
        woken.set_result(None)


class AsyncAcquireAll(SeveralKeys[WaitingTask]):
    """Several keys at once for a task; those of which nothing is known are asked for at the same time."""

    def __init__(self, costs: Costs, registry: Any, priority: int, came: Mapping[str, int]) -> None:
        super().__init__(costs, registry, registry.entry, priority, came)

    def _begin(self, keys: Sequence[str], patience: float) -> None:
        for key in keys:
            caller = self._begun[key] = self._join(key, patience)
            if isinstance(caller.waiter.verdict, Refuse):
                break  # from memory: no other key has to be asked for

    async def _hold(self, key: str, until: float) -> AdmissionResult:
        caller = self._begun.pop(key, None) or self._join(key, until)
        while isinstance(await caller.verdict(self._clock), Retired):
            self._held.remove(caller)
            caller.entry.leave(caller)
            caller = self._join(key, until)
        return caller.told()

    def _join(self, key: str, until: float) -> WaitingTask:
        entry = self._find(key)
        caller: WaitingTask = entry.join(self._costs[key], until, self._number(entry, key), priority=self._priority)
        self._places[entry] = caller.waiter.number
        self._held.append(caller)
        return caller

    def _leave(self) -> None:
        self._begun.clear()
        while self._held:
            caller = self._held.pop()
            caller.entry.leave(caller)

    def _finish(self, leave: Callable[[], None]) -> None:
        """Do nothing: it is done at once."""


class LoopRefillGate:
    """Shut while a fetch is under way that brings tokens for many. Tasks wait here for its end, and not in the queue.

    In the queue each task has a waiter, is served its token, and is woken with it. With 64 tasks and batches of 1,000
    tokens that took 16 us a task, more than all the rest. Here it takes 4 us.
    """

    __slots__ = ("_brings", "_is_shut", "_room", "_timer", "_waiting", "patience")

    def __init__(self, patience: float) -> None:
        """`patience`: how long (s) a task waits here at most; nobody waits for a fetch that takes longer."""
        self.patience = patience
        self._brings = 0  # tokens, by the last fetch; 0 where it was slow
        self._is_shut = False
        self._room = 0  # of what it brings, what nobody waits for yet
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def learn(self, granted: int, seconds: float) -> None:
        """Take note of what a fetch brought, and how long that took."""
        self._brings = granted if seconds < self.patience else 0

    def shut(self) -> None:
        """A fetch begins."""
        self._is_shut, self._room = True, self._brings

    def open(self) -> None:
        """A fetch has ended, or takes too long: let all tasks try again, in the order in which they came."""
        self._is_shut = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():  # its task was cancelled
                turn.set_result(None)

    def admits(self, cost: int) -> bool:
        """Whether a task of this cost waits here; else it joins the queue, and the next ask counts it."""
        return self._is_shut and 0 < cost * MANY <= self._brings

    def turn(self, cost: int) -> "asyncio.Future[None]":
        """Return what to await until it opens, for a cost that it admits; a task that is cancelled just leaves.

        A task that finds no room opens the gate. All tasks then join the queue, in their order, and the next ask counts
        all of them. If that task alone joined the queue, it would be served before all that wait here.
        """
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_later(self.patience, self.open)
        if self._room >= 0 > self._room - cost:
            loop.call_soon(self.open)
        self._room -= cost
        turn = loop.create_future()
        self._waiting.append(turn)
        return turn


NO_GATE = LoopRefillGate(0.0)
"""Of all keys whose fetches bring few: it admits nobody."""
