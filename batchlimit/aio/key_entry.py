"""One key's reservoir on an event loop, and how tasks wait at it."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import uniform
from typing import Any, ParamSpec, Protocol, TypeVar

from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.refill_gate import NO_GATE, RefillGate
from batchlimit.aio.timer import Due
from batchlimit.aio.waiting_task import WaitingTask
from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.redaction import shown
from batchlimit.reservoir import express
from batchlimit.reservoir.admission_result import AdmissionResult
from batchlimit.reservoir.failure_policy import CircuitOpen
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import KeyStatistics
from batchlimit.reservoir.waiter import NOBODY, Admit, Fail, Fetch, Refuse, Retired, Verdict, Wait, Waiter
from batchlimit.stores.outage import addressed, unavailable
from batchlimit.stores.timeouts import MANY
from batchlimit.waiting import NO_WAIT

P = ParamSpec("P")
T = TypeVar("T")
_logger = logging.getLogger("batchlimit")
Step = Verdict | Wait | Fetch
_PATIENCE = 1.0
"""How long (s) a key entry is left alone whose looking after failed."""


class Owner(Protocol):
    """What a key entry needs of the limiter that it belongs to."""

    store: GuardedStore
    clock: Callable[[], float]

    def watch(self, thing: Due) -> None:
        """Come to this thing at its `due`."""
        ...

    def step(self, work: Callable[[], object]) -> None:
        """Do what one waiter is to do next, in this turn of the loop or in one soon."""
        ...

    def wake(self, task: "asyncio.Future[None]") -> None:
        """Let a task go on, in this turn of the loop or in one soon."""
        ...

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run this in a task of the limiter's own, that no caller cancels."""
        ...

    def follow(self, work: "asyncio.Future[Any]") -> None:
        """Know of work that is under way, until it is done."""
        ...

    def drop(self, entry: "KeyEntry") -> None:
        """Let go of a key entry that has retired."""
        ...


class KeyEntry:
    """Where the tasks that want one key's tokens meet. Nothing here is interrupted but where it says `await`."""

    __slots__ = ("_home", "_is_dead", "_refill_gate", "_rousing", "due", "key", "reservoir", "seen", "tokens")

    def __init__(self, key: str, reservoir: Reservoir, home: Owner) -> None:
        self.key = key
        self.reservoir = reservoir
        self.tokens = reservoir.tokens  # one look less for every hit
        self.due = math.inf
        self.seen = 0  # see Ring
        self._refill_gate = NO_GATE
        self._home = home
        self._rousing = self._is_dead = False

    def __repr__(self) -> str:
        return f"<KeyEntry {shown(self.key)}: {self.reservoir}>"

    def take(self, cost: int) -> float:
        """Spend tokens that are here, if nobody is in line for them; return until when that counts, or NOW: not."""
        before = self.tokens.take(cost)
        if before == NO_WAIT and self.tokens.low_watermark:
            before = self.reservoir.prefetch.take_low(cost)
            self._rouse()
        if self._home.clock() < before:
            return before
        if before != NO_WAIT:
            self.tokens.took_late(cost)
        return NO_WAIT

    async def settle(self, cost: int, deadline: float) -> AdmissionResult | None:
        """Admit a call from memory, or wait in line until there is a verdict; raises what went wrong.

        None: the key entry has retired, and another one stands for the key.
        """
        if self.reservoir.is_retired:
            return None
        if (before := self.take(cost)) != NO_WAIT:
            return AdmissionResult(Admit(before), waited=False, asked=False, reservoir=self.reservoir)
        if self._refill_gate.admits(cost):
            if (before := await self._pass(cost, deadline)) != NO_WAIT:
                return AdmissionResult(Admit(before), waited=True, asked=False, reservoir=self.reservoir)
            if self.reservoir.is_retired:
                return None
        caller = self.join(cost, deadline, prompt=True)
        try:
            verdict = await caller.verdict(self._home.clock)
        except BaseException:
            self.leave(caller)
            raise
        if isinstance(verdict, Retired):
            return None
        if self.reservoir.admission.confirm(caller.waiter):
            self._rouse()
        return AdmissionResult(verdict, caller.waited, caller.waiter.asked > 0, self.reservoir)

    async def _pass(self, cost: int, deadline: float) -> float:
        """Wait for tokens that come for many, and take some, as `take` does; NO_WAIT: join the queue."""
        patience = self._refill_gate.patience
        last = self._home.clock() + patience  # nobody begins to wait later than that: in line everybody has a turn
        if deadline != NO_WAIT:
            last = min(last, deadline - patience)
        while self._refill_gate.admits(cost) and self._home.clock() <= last:
            await self._refill_gate.turn(cost)
            if self.reservoir.is_retired:
                return NO_WAIT
            if (before := self.take(cost)) != NO_WAIT:
                return before
        return NO_WAIT

    def join(self, cost: int, deadline: float, number: int = 0, *, prompt: bool = False) -> WaitingTask:
        """Put a caller in line, where it stood before if it has a number, and do for it what can be done at once."""
        caller = WaitingTask(self, cost, deadline, prompt=prompt)
        caller.waiter.number = number
        try:
            self._step(caller, self._enter)
        except BaseException:  # a signal handler of the user's own, while an ask was sent
            self.leave(caller)
            raise
        return caller

    def leave(self, caller: WaitingTask) -> None:
        """Take a caller out of line; what it was given is for others."""
        if self._is_dead:
            return
        caller.has_left, caller.due = True, math.inf
        self.reservoir.leave(caller.waiter, self._home.clock())
        self._rouse()

    def step(self, caller: WaitingTask) -> None:
        """Do what the caller is to do next, in its place."""
        self._step(caller, self.reservoir.step)

    def soon(self, work: Callable[[], object]) -> None:
        """Do this for a caller who is told of something, in this turn of the loop or in one soon."""
        self._home.step(work)

    def wake(self, task: "asyncio.Future[None]") -> None:
        """Let a task go on that has a verdict, in this turn of the loop or in one soon."""
        self._home.wake(task)

    def _enter(self, waiter: Waiter, now: float) -> Step:
        if (fetch := express.ask(self.reservoir, waiter, now)) is not None:
            return fetch
        self.reservoir.admission.join(waiter)
        return self.reservoir.step(waiter, now)

    def _step(self, caller: WaitingTask, say: Callable[[Waiter, float], Step]) -> None:
        try:
            step = say(caller.waiter, self._home.clock())
        except Exception as error:  # noqa: BLE001  a sizer of the user's own may raise whatever it likes: in its caller
            caller.fail(error)
        else:
            self._do(step, caller)
        self._rouse()

    def _do(self, step: Step, caller: WaitingTask) -> None:
        match step:
            case Wait(seconds):
                if seconds is not None:
                    self._look_again(caller, self._home.clock() + seconds)
            case Fetch() as fetch:
                self._fetch(fetch, caller.waiter)
                caller.waiter.request = None  # the limiter's own from here on: the caller may leave
            case Admit() | Refuse() | Fail() | Retired():
                caller.wake()

    def die(self) -> None:
        """The loop was closed. Tasks of it may be destroyed later, and leave: they must not move anything any more.

        The next key entry of this key is the same instance to the store: two of them that ask would mint tokens.
        """
        self._is_dead = True
        self.tokens.disown()

    def ring(self) -> None:
        """Do what there is to do when no caller is here."""
        try:
            task = self.reservoir.lifecycle.tend(self._home.clock())
        except Exception:
            self._look_again(self, self._home.clock() + _PATIENCE)
            raise
        match task:
            case Fetch() as fetch:
                self._fetch(fetch)
            case GiveBack() as back:
                self._give_back(back)
            case None:
                pass
        if self.reservoir.is_retired:
            self._home.drop(self)
        self._rouse()

    def refund(self, cost: int) -> "asyncio.Task[int | StoreUnavailable] | None":
        """Take back tokens that were admitted and not used; the task by which they travel, if they do."""
        back = self.reservoir.refund(Waiter(cost, NO_WAIT, NOBODY), self._home.clock())
        task: asyncio.Task[Any] | None = None if back is None else self._give_back(back)
        if task is not None and not self.reservoir.state.fallback.fails_closed:
            task = self._home.start(_silenced(task))
        self._rouse()
        return task

    def debit(self, cost: int) -> None:
        """Charge tokens that were used already; whoever comes then waits behind what is not there yet."""
        self.reservoir.debit(cost, self._home.clock())
        self._rouse()

    @property
    def uses(self) -> int:
        """See FreeTokens.uses."""
        return self.tokens.uses

    def figures(self) -> KeyStatistics:
        """Return the reservoir's figures."""
        return self.reservoir.statistics

    def evict(self) -> bool:
        """Retire to make room, unless somebody needs this key entry; it is never looked after again."""
        if not self.reservoir.lifecycle.evict():
            return False
        self.due = math.inf
        return True

    def close(self, error: Exception) -> None:
        """Fail whoever waits; to be followed by `drain`, when what is under way has arrived."""
        self.reservoir.lifecycle.close(error, Waiter(0, NO_WAIT, NOBODY))
        self._rouse()
        self._refill_gate.open()

    async def empty(self) -> bool:
        """Return all tokens, after one last ask for what is owed; False: the store is away."""
        if (fetch := self.reservoir.lifecycle.last_ask(self._home.clock())) and (task := self._take(fetch, None)):
            await asyncio.wait([task])
            await asyncio.sleep(0)  # its answer is taken in by a callback
        if (back := self.reservoir.lifecycle.drain()) is None:
            return True
        return isinstance(await self._give_back(back), int)

    def _fetch(self, fetch: Fetch, waiter: Waiter | None = None) -> "asyncio.Future[Any] | None":
        """Ask the store in this turn of the loop, if it can be; else in a task. The waiter is the one of who asks."""
        try:
            under_way = self._home.store.send(self.key, fetch.quota, fetch.ask, partial(self._heard, fetch, waiter))
        except Exception as error:  # noqa: BLE001  a store of the user's own may raise whatever it likes
            self.reservoir.failed(fetch, _uncounted(error), self._home.clock())
            return None
        except BaseException:
            self.reservoir.failed(fetch, None, self._home.clock())
            raise
        if under_way is None:
            return self._take(fetch, waiter)
        self._home.follow(under_way)
        self._refill_gate.shut()
        return under_way

    def _take(self, fetch: Fetch, waiter: Waiter | None) -> "asyncio.Future[Any] | None":
        try:
            task = self._home.start(outcome(self._home.store.take, self.key, fetch.quota, fetch.ask))
        except Exception as error:  # noqa: BLE001  a task factory of the user's own
            self._took(
                fetch, waiter, _uncounted(error)
            )  # opens the refill gate, which an ask that came to nothing shut
            return None
        except BaseException:
            self.reservoir.failed(fetch, None, self._home.clock())
            raise
        task.add_done_callback(partial(self._taken, fetch, waiter))
        self._refill_gate.shut()
        return task

    def _taken(self, fetch: Fetch, waiter: Waiter | None, task: "asyncio.Task[Grant | StoreUnavailable]") -> None:
        """Not in the task itself, which may be cancelled before it begins."""
        self._took(fetch, waiter, _CANCELLED if task.cancelled() or task.exception() else task.result())

    def _heard(self, fetch: Fetch, waiter: Waiter | None, outcome: Grant | StoreUnavailable | None) -> None:
        if outcome is None:
            self._take(fetch, waiter)
        else:
            self._took(fetch, waiter, outcome)

    def _took(self, fetch: Fetch, waiter: Waiter | None, outcome: object) -> None:
        """Report what became of an ask."""
        now = self._home.clock()
        self._refill_gate.open()  # first: the next ask may leave before this has ended, and shuts it again
        if isinstance(outcome, Grant):
            self._granted(fetch, waiter, outcome, now)
        else:
            self._refill_gate.learn(0, 0.0)  # in line all hear of the next failure at once
            self._failed(fetch, outcome, now)
        self._rouse()

    def _granted(self, fetch: Fetch, waiter: Waiter | None, grant: Grant, now: float) -> None:
        if self._refill_gate is NO_GATE and grant.granted >= MANY:
            self._refill_gate = RefillGate(self._home.store.brief)
        self._refill_gate.learn(grant.granted, now - fetch.sent)
        jitter = uniform(0.75, 1.25)
        if waiter is not None and express.serve(self.reservoir, waiter, fetch, grant, now, jitter):
            waiter.event.set()
        else:
            self.reservoir.granted(fetch, grant, now, jitter)

    def _failed(self, fetch: Fetch, outcome: object, now: float) -> None:
        if outcome is _CANCELLED and not fetch.repeated:
            self.reservoir.failed(fetch, None, now)  # it was somebody else's end: whoever is still here asks again
        elif isinstance(outcome, StoreUnavailable):
            self.reservoir.failed(fetch, outcome, now)
        else:
            error = _uncounted(TypeError(f"an answer that is no Grant: {shown(outcome)}"))
            self.reservoir.failed(fetch, addressed(error, self._home.store.address), now)

    def _give_back(self, back: GiveBack) -> "asyncio.Task[int | StoreUnavailable]":
        task = self._home.start(outcome(self._home.store.give_back, self.key, self.reservoir.quota, back))
        task.add_done_callback(partial(self._gave, back))
        return task

    def _gave(self, back: GiveBack, task: "asyncio.Task[int | StoreUnavailable]") -> None:
        error = None if task.cancelled() or task.exception() else task.result()
        if isinstance(error, StoreUnavailable):
            _logger.debug("tokens of %s were not given back; they will expire: %s", shown(self.key), error)
        self.reservoir.gave_back(self._home.clock(), back if isinstance(error, CircuitOpen) else None)
        self._rouse()

    def _rouse(self) -> None:
        """After every change: wake whom it concerns, and plan the next look.

        Whoever is woken may change something in turn. That is taken up here, in a loop: a line of a thousand callers
        who are refused one after the other is no reason for calls a thousand deep.
        """
        if self._rousing:
            return
        self._rousing = True
        try:
            while awake := self.reservoir.to_wake():
                for waiter in awake:
                    waiter.event.set()
        finally:
            self._rousing = False
        self.plan()

    def plan(self) -> None:
        """Have the timer come when there will be something to do."""
        self._look_again(self, self.reservoir.lifecycle.due())

    def _look_again(self, thing: Due, at: float) -> None:
        if at < thing.due:
            thing.due = at
            self._home.watch(thing)


_CANCELLED = BucketUnavailable("the ask was cancelled")


def _uncounted(error: Exception) -> BucketUnavailable:
    """Return an error that ends the wait of all callers: the circuit breaker does not count it, so never opens."""
    found = BucketUnavailable(*unavailable(error).args)
    found.__cause__ = error
    return found


async def outcome(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | StoreUnavailable:
    """What a store says, or what is wrong with it: a task that fails would be the event loop's affair as well."""
    try:
        return await call(*args, **kwargs)
    except StoreUnavailable as error:
        return error
    except Exception as error:  # noqa: BLE001  what a store of the user's own raises reaches callers as the error they know
        return unavailable(error)


async def arrived(key: str, travels: "asyncio.Task[int | StoreUnavailable] | None") -> None:
    """Wait until tokens that travel have arrived, or raise why they have not; who is cancelled does not stop them.

    Those that have not left yet do so later.
    """
    result = None if travels is None else await asyncio.shield(travels)
    if isinstance(result, StoreUnavailable) and not isinstance(result, CircuitOpen):
        raise Fail(result).to_raise(key)


async def _silenced(travels: "asyncio.Task[int | StoreUnavailable]") -> int:
    """Return how many tokens arrived: none, where the store is away and nobody is to hear of it."""
    return result if isinstance(result := await travels, int) else 0
