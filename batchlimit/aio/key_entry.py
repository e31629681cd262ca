"""One key's reservoir on an event loop, and its requests."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from random import uniform
from typing import Any, TypeVar

from batchlimit.aio.guarded_store import CANCELLED
from batchlimit.aio.home import Due, Home
from batchlimit.aio.waiting_task import NO_GATE, LoopRefillGate, WaitingTask
from batchlimit.base.redaction import shown
from batchlimit.base.waiting import LONG_AGO, NO_WAIT
from batchlimit.base.waking import HEARTBEAT
from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.errors import StoreUnavailable
from batchlimit.events import log_event, named
from batchlimit.keyspace.census import BaseKeyEntry
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.waiter import NOBODY, Admit, Fail, Fetch, Refuse, Retired, Wait, Waiter
from batchlimit.stores.guard import MANY
from batchlimit.stores.outage import addressed, uncounted

T = TypeVar("T")
_PATIENCE = 1.0
"""How long (s) a key entry is left alone after looking after it failed."""
_NOTHING = None, 0.0


class KeyEntry(BaseKeyEntry):
    """Where the tasks that use one key meet: it makes each change of the reservoir, and then wakes whom it concerns.

    Nothing here awaits, so no other task comes between. `due` is the instant at which the timer comes next.

    It has 16 public methods: each is one event at a key.
    """

    __slots__ = ("_asker", "_is_dead", "_is_waking", "_seen_in_flight", "home", "refill_gate")

    def __init__(self, key: str, reservoir: Reservoir, home: Home) -> None:
        self.key, self.reservoir, self.tokens, self.due = key, reservoir, reservoir.tokens, math.inf
        self.refill_gate, self.home = NO_GATE, home
        self._asker: WaitingTask | None = None  # the caller whose request is in flight
        self._is_waking = self._is_dead = False
        self._seen_in_flight: tuple[object, float] = _NOTHING  # a request that a caller found in flight, and when

    def take(self, cost: int) -> float:
        """Spend free tokens unless a caller waits for them; return until when they count (LONG_AGO: too few)."""
        before = self.tokens.take(cost)
        if before == LONG_AGO and self.tokens.low_watermark:
            before = self.reservoir.requests.take_low(cost)
            self.changed()
        if self.home.clock() < before:
            return before
        if before != LONG_AGO:
            self.tokens.took_late(cost)
        return LONG_AGO

    def took_late(self, cost: int) -> None:
        """Uncount tokens that were taken too late to be spent."""
        self.tokens.took_late(cost)

    def join(
        self, cost: int, deadline: float, number: int = 0, *, prompt: bool = False, priority: int = 1
    ) -> WaitingTask:
        """Put a caller in the queue, in its old place if it has a number, and do for it what can be done at once."""
        caller = WaitingTask(self, cost, deadline, prompt=prompt, priority=priority)
        caller.waiter.number = number
        if (request := self.reservoir.state.in_flight) is not None:
            self._look_after(request)
        try:
            self.reservoir.admission.join(caller.waiter)
            self.step(caller)
        except BaseException:  # a signal handler of the user's own, while a request was sent
            self.leave(caller)
            raise
        return caller

    def adopt(self, fetch: Fetch, cost: int, deadline: float, number: int, priority: int) -> WaitingTask | None:
        """Begin with this in flight, sent for the first caller; a report follows. None: another one was faster."""
        caller = WaitingTask(self, cost, deadline, prompt=True, priority=priority)
        caller.waited, caller.waiter.number = True, number
        if not self.reservoir.adopt(caller.waiter, fetch):
            return None
        caller.waiter.request = None  # the limiter's own: the caller may leave
        return caller

    def _look_after(self, request: Fetch | GiveBack) -> None:
        """Give up a request for whose end nobody hears: a signal handler that raised made the loop forget to tell."""
        now, (seen, since) = self.home.clock(), self._seen_in_flight
        if seen is not request:
            self._seen_in_flight = request, now
        elif now - since > self.home.store.longest + HEARTBEAT:
            self._failed(request, None) if isinstance(request, Fetch) else self.reservoir.gave_back(now)

    def leave(self, caller: WaitingTask) -> None:
        """Take a caller out of the queue; what it was given is for others."""
        if self._is_dead:
            return
        caller.has_left, caller.due = True, math.inf
        self.reservoir.leave(caller.waiter, self.home.clock())
        caller.part()
        self.changed()

    def step(self, caller: WaitingTask) -> None:
        """Do what the caller is to do next, in its place."""
        try:
            step = self.reservoir.step(caller.waiter, self.home.clock())
        except Exception as error:  # noqa: BLE001  a sizer of the user's own may raise whatever it likes: in its caller
            caller.fail(error)
        else:
            match step:
                case Wait(seconds):
                    if seconds is not None:
                        self._look_again(caller, self.home.clock() + seconds)
                case Fetch() as fetch:
                    self._asker = caller
                    self._fetch(fetch)
                    caller.waiter.request = None  # the limiter's own from here on: the caller may leave
                case Admit() | Refuse() | Fail() | Retired():
                    caller.wake()
        self.changed()

    def report(self, request: Fetch, outcome: object) -> None:
        """Report what became of a request: callers get what the store granted, or what went wrong."""
        self.refill_gate.open()  # first: the next request may leave before this has ended, and shuts it again
        if isinstance(outcome, Grant):
            self._asker = None
            self._granted(request, outcome)
        else:
            self.refill_gate.learn(0, 0.0)  # callers in the queue get the next failure at once
            self._failed(request, self._failure(request, outcome))
        self.changed()

    def _granted(self, fetch: Fetch, grant: Grant) -> None:
        """Take in what the store granted, before any caller is woken."""
        if self.refill_gate is NO_GATE and grant.granted >= MANY:
            self.refill_gate = LoopRefillGate(self.home.store.brief)
        now = self.home.clock()
        self.refill_gate.learn(grant.granted, now - fetch.sent)
        self.reservoir.granted(fetch, grant, now, uniform(0.75, 1.25))

    def _failed(self, request: Fetch, error: Exception | None) -> None:
        """Take in that a request failed; its caller looks again, for nobody else looks at its deadline."""
        self.reservoir.failed(request, error, self.home.clock())
        if (asker := self._asker) is not None:
            self._asker = None
            self.reservoir.state.queue.wake(asker.waiter)

    def ring(self) -> None:
        """Do what there is to do when no caller is here; the timer calls it at `due`."""
        try:
            task = self.reservoir.lifecycle.tend(self.home.clock())
        except Exception:
            self._look_again(self, self.home.clock() + _PATIENCE)
            raise
        match task:
            case Fetch() as fetch:
                self._fetch(fetch)
            case GiveBack() as back:
                self.give_back(back)
            case None:
                pass
        if self.reservoir.state.is_retired:
            self.home.drop(self)
        self.changed()

    def evict(self) -> bool:
        """Retire to make room, unless a caller needs this key entry; the timer does not come again."""
        if not self.reservoir.lifecycle.evict():
            return False
        self.due = math.inf
        return True

    def die(self) -> None:
        """End with the loop, which was closed. Its tasks may be destroyed later, and leave: that changes nothing more.

        The next key entry of this key is the same instance to the store: if both asked, tokens would be minted.
        """
        self._is_dead = True
        self.tokens.disown()

    def locked(self, change: Callable[[], T]) -> T:
        """Change the reservoir; then wake the waiters concerned. No lock is needed on a loop."""
        result = change()
        self.changed()
        return result

    def changed(self) -> None:
        """Wake the waiters that a change concerns, and plan the next look. Follows every change.

        A waiter that is woken may change something in turn. The loop takes that up here: a thousand callers that are
        refused one after the other are no reason for calls a thousand deep.
        """
        if self._is_waking:
            return
        self._is_waking = True
        try:
            while awake := self.reservoir.to_wake():
                for waiter in awake:
                    waiter.event.set()
        finally:
            self._is_waking = False
        if self.reservoir.state.in_flight is None and self.due > self.reservoir.at_rest_until:
            self._look_again(self, self.reservoir.lifecycle.due())

    def _fetch(self, request: Fetch) -> None:
        """Ask the store, in this turn of the loop if it can be."""
        try:
            is_sent = self.home.store.send(self.key, request.quota, request.ask, partial(self._hear, request))
        except Exception as error:  # noqa: BLE001  a store of the user's own may raise whatever it likes
            self._failed(request, uncounted(error))
        except BaseException:
            self._failed(request, None)
            raise
        else:
            if is_sent:
                self.refill_gate.shut()
            else:
                self.fetch_by_task(request)

    def _look_again(self, thing: Due, at: float) -> None:
        if at < thing.due:
            thing.due = at
            self.home.watch(thing)

    def _hear(self, request: Fetch, outcome: Grant | StoreUnavailable | None) -> None:
        """Report what the store said to a request that was sent to it; None: it is to be sent by a task."""
        if outcome is None:
            self.fetch_by_task(request)
        else:
            self.report(request, outcome)

    def fetch_by_task(self, request: Fetch) -> "asyncio.Future[Any] | None":
        """Ask the store by a task; return that, or None if there is none and the request has failed."""
        store = self.home.store
        try:
            task = self.home.start(store.outcome(store.take, self.key, request.quota, request.ask))
        except Exception as error:  # noqa: BLE001  a task factory of the user's own
            self.report(request, uncounted(error))
            return None
        except BaseException:
            self.reservoir.failed(request, None, self.home.clock())
            raise
        task.add_done_callback(partial(self._taken, request))
        self.refill_gate.shut()
        return task

    def _taken(self, request: Fetch, task: "asyncio.Task[Grant | StoreUnavailable]") -> None:
        """Report after the task, which may be cancelled before it begins."""
        self.report(request, CANCELLED if task.cancelled() or task.exception() else task.result())

    def _failure(self, request: Fetch, outcome: object) -> Exception | None:
        """Return what callers get; None: the request was cancelled, which is not the store's fault, so ask again."""
        if outcome is CANCELLED and not request.repeated:
            return None
        if isinstance(outcome, StoreUnavailable):
            return outcome
        return addressed(uncounted(TypeError(f"an answer that is no Grant: {shown(outcome)}")), self.home.store.address)

    def give_back(self, back: GiveBack) -> "asyncio.Task[int | StoreUnavailable]":
        """Return tokens, once; those that the store does not take expire there."""
        store = self.home.store
        task = self.home.start(store.outcome(store.give_back, self.key, self.reservoir.state.quota, back))
        task.add_done_callback(partial(self._gave, back))
        return task

    def _gave(self, back: GiveBack, task: "asyncio.Task[int | StoreUnavailable]") -> None:
        error = None if task.cancelled() or task.exception() else task.result()
        if isinstance(error, StoreUnavailable):
            message = "tokens of %s were not given back; they will expire: %s"
            log_event("tokens.not_returned", message, named(self.key), error, key=self.key, reason=str(error))
        self.reservoir.gave_back(self.home.clock(), back if isinstance(error, CircuitOpen) else None, back)
        self.changed()

    def refund(self, cost: int, key: str = "") -> Callable[[], Awaitable[None]]:
        """Take back tokens that were admitted and not used; return what waits until they arrived, as `key` names it."""
        back = self.reservoir.lifecycle.refund(Waiter(cost, NO_WAIT, NOBODY), self.home.clock())
        task = None if back is None else self.give_back(back)
        self.changed()
        return partial(self._arrived, task, key)

    async def _arrived(self, task: "asyncio.Task[int | StoreUnavailable] | None", key: str) -> None:
        """Wait until a GiveBack has ended, which no cancelled caller stops; raise if its key fails closed."""
        result = 0 if task is None else await asyncio.shield(task)
        if isinstance(result, StoreUnavailable) and self.reservoir.state.fallback.fails_closed:
            error = self.reservoir.lifecycle.ended or result  # then the error tells of our end, not of the store
            if not isinstance(error, CircuitOpen):
                raise Fail(error).to_raise(key)

    def hold(self, seconds: float) -> bool:
        """Let go of what is leased, and ask for nothing meanwhile; True, for it does not retire between two awaits."""
        back = self.reservoir.lifecycle.pause(seconds, self.home.clock(), Waiter(0, NO_WAIT, NOBODY))
        if back is not None:
            self.give_back(back)
        self.changed()
        return True
